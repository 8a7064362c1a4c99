// Package smolvmbinding is the handler that gives a SmolVM its node.
package smolvmbinding

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// Name is the name of the handler.
const Name = "smolvmbinding"

// Handler is the handler.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return Name }

// EnsureCreated has the node stored before anything is asked of it: a machine that is made on a node which no status names
// would be lost with the process that made it. While no node suits, it waits for the events of nodes and other SmolVMs.
func (Handler) EnsureCreated(_ context.Context, s *state.State) (chain.Outcome, error) {
	if s.Bound() {
		return chain.Done(), nil
	}
	if err := machinespec.Validate(s.VM); err != nil {
		return chain.Outcome{}, problem.Newf(v1alpha1.ReasonInvalidSpec, "%s", err)
	}
	if s.Decision.Node == "" {
		return chain.Wait(v1alpha1.ReasonNoEligibleNodes, s.Decision.Message, 0), nil
	}
	return chain.Store("node " + s.Decision.Node + " was chosen and is stored first"), nil
}

// EnsureDeleted does nothing: the node is free once the SmolVM is gone.
func (Handler) EnsureDeleted(context.Context, *state.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
