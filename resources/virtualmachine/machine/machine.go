// Package machine is the handler that reports whether the pod of a virtual machine is as declared.
package machine

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Handler reports what keeps the machine from being as declared.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "machine" }

// EnsureCreated waits until the machine runs, or is stopped.
func (Handler) EnsureCreated(_ context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if reason, message := s.Obstacle(); reason != "" {
		return chain.Wait(reason, message, s.UntilOverdue()), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing because the StatefulSet ends the pod.
func (Handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
