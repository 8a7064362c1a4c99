// Package live is the handler that brings a running machine to what is declared, as far as that needs no restart.
package live

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Commander tells the runner of a virtual machine what the machine is to be (State.Order). It does not wait for that.
type Commander interface {
	Order(s *virtualmachine.State)
}

// New returns the handler.
func New(c Commander) chain.Handler[*virtualmachine.State] { return handler{c} }

type handler struct{ commander Commander }

// Name is the handler's name.
func (handler) Name() string { return "live" }

// EnsureCreated orders what is declared, and waits until the runner reports that the machine is that. A machine that
// does not run has nothing to change.
func (h handler) EnsureCreated(_ context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if !s.Serves() {
		return chain.NotConfigured(), nil
	}
	h.commander.Order(s)
	if reason, message := s.Unadjusted(); reason != "" {
		return chain.Wait(reason, message, 0), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
