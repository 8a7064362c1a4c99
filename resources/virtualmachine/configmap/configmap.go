// Package configmap is the handler of the ConfigMap that describes a virtual machine to its runner and to people.
package configmap

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// New returns the handler.
func New() apply.Resource[*virtualmachine.State] {
	return apply.Resource[*virtualmachine.State]{Handler: "configmap", Kinds: []client.Object{&corev1.ConfigMap{}}, Build: build}
}

func build(s *virtualmachine.State) (apply.Desired, error) {
	data, err := s.ConfigMap()
	if err != nil {
		return apply.Desired{}, err
	}
	return apply.Desired{Objects: []client.Object{&corev1.ConfigMap{ObjectMeta: s.ObjectMeta(s.VM.Name), Data: data}}}, nil
}
