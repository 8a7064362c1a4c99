// Package statefulset is the handler of the StatefulSet that creates the claims and the pod of a virtual machine.
package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// New returns the handler.
func New() apply.Resource[*virtualmachine.State] {
	return apply.Resource[*virtualmachine.State]{Handler: "statefulset", Kinds: []client.Object{&appsv1.StatefulSet{}}, Build: build}
}

func build(s *virtualmachine.State) (apply.Desired, error) {
	set, err := s.StatefulSet()
	if err != nil {
		return apply.Desired{}, err
	}
	return apply.Desired{Objects: []client.Object{set}}, nil
}
