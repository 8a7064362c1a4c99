// Package service is the handler of the Service of type LoadBalancer by which the display of a virtual machine is
// reached.
package service

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// New returns the handler.
func New() apply.Resource[*virtualmachine.State] {
	return apply.Resource[*virtualmachine.State]{Handler: "service", Kinds: []client.Object{&corev1.Service{}}, Build: build}
}

func build(s *virtualmachine.State) (apply.Desired, error) {
	service := s.Service()
	if service == nil {
		return apply.Desired{NotConfigured: true}, nil
	}
	return apply.Desired{Objects: []client.Object{service}}, nil
}
