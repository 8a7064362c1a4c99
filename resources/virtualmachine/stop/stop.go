// Package stop is the handler that stops a virtual machine whose StatefulSet cannot be applied as a whole.
package stop

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Scaler sets the replicas of a StatefulSet to zero, and changes nothing else.
type Scaler interface {
	ScaleToZero(ctx context.Context, set *appsv1.StatefulSet) error
}

// New returns the handler.
func New(s Scaler) chain.Handler[*virtualmachine.State] { return handler{s} }

type handler struct{ scaler Scaler }

// Name is the handler's name.
func (handler) Name() string { return "stop" }

// EnsureCreated stops the machine if nothing else does.
func (h handler) EnsureCreated(ctx context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if !s.MustStop() {
		return chain.Done(), nil
	}
	return chain.Done(), h.scaler.ScaleToZero(ctx, s.Observed.StatefulSet)
}

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
