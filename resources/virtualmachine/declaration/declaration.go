// Package declaration is the handler that reports what in the declaration of a virtual machine has no effect, has none
// yet, or cannot be carried out.
package declaration

import (
	"context"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Handler reports problems of the declaration. The other handlers carry out the rest of it, so that a machine can always
// be stopped.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "declaration" }

// EnsureCreated fails if a part of the declaration cannot be carried out.
func (Handler) EnsureCreated(_ context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if s.Err != nil {
		return chain.Outcome{}, s.Err
	}
	if notes := s.Ignored(); len(notes) > 0 {
		return chain.Outcome{State: chain.StateDone, Reason: "FieldsIgnored", Message: strings.Join(notes, "; ")}, nil
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing.
func (Handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
