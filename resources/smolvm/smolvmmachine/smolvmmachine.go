// Package smolvmmachine is the handler that makes the machine of a SmolVM what its spec wants.
package smolvmmachine

import (
	"context"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// Name is the name of the handler.
const Name = "smolvmmachine"

// Runtime takes steps with machines.
type Runtime interface {
	// Do begins to take the step of a state, or tells how far it has got. It does not wait for it: a pass follows when it has
	// ended. Nothing ends what is under way and may take minutes, and a Release forgets the machine.
	Do(ctx context.Context, s *state.State) state.Progress
}

// New returns the handler.
func New(r Runtime) chain.Handler[*state.State] { return handler{r} }

type handler struct{ runtime Runtime }

// Name is the handler's name.
func (handler) Name() string { return Name }

// pending says what is under way, by actions.
var pending = map[machinestep.Action]struct{ reason, message string }{
	machinestep.Create: {v1alpha1.ReasonRuntimePending, state.Creating},
	machinestep.Start:  {v1alpha1.ReasonStartPending, "the machine is being started"},
	machinestep.Stop:   {v1alpha1.ReasonStopping, "the machine is being stopped"},
	machinestep.Resize: {v1alpha1.ReasonResizing, "the disks of the machine are being made larger"},
	machinestep.Delete: {v1alpha1.ReasonDeleting, "the machine is being deleted"},
}

// EnsureCreated takes the next step, and is Done when there is none.
func (h handler) EnsureCreated(ctx context.Context, s *state.State) (chain.Outcome, error) {
	switch {
	case !s.Decidable():
		return unknown(s), nil
	case s.Step.Action == machinestep.Nothing:
		if !s.VM.Spec.Running {
			h.runtime.Do(ctx, s)
		}
		done := chain.Done()
		done.Reason, done.Message = v1alpha1.ReasonReconciled, s.Step.Message
		return done, nil
	case s.Step.Action == machinestep.Refuse:
		return chain.Wait(s.Step.Reason, s.Step.Message, s.Runtime.After), nil
	}
	return h.do(ctx, s), nil
}

// EnsureDeleted deletes the machine. It is Done when the machine is gone, and when it is given up.
func (h handler) EnsureDeleted(ctx context.Context, s *state.State) (chain.Outcome, error) {
	switch {
	case !s.Decidable():
		// While the machine is being made, nothing is known of it. That may take minutes, and ends.
		h.runtime.Do(ctx, s)
		return unknown(s), nil
	case s.Step.Action == machinestep.Release:
		h.runtime.Do(ctx, s)
		return chain.Done(), nil
	case s.Step.Action == machinestep.Refuse:
		return chain.Wait(s.Step.Reason, s.Step.Message, s.Runtime.After), nil
	}
	return h.do(ctx, s), nil
}

// do takes a step that takes time. A failure of it is reported before what the spec asks for and cannot be.
func (h handler) do(ctx context.Context, s *state.State) chain.Outcome {
	p := h.runtime.Do(ctx, s)
	switch {
	case p.Reason != "":
		return chain.Wait(p.Reason, p.Message, p.After)
	case s.Step.Reason != "":
		return chain.Wait(s.Step.Reason, s.Step.Message, p.After)
	}
	now := pending[s.Step.Action]
	return chain.Wait(now.reason, now.message, p.After)
}

// again is when a pass looks again at a runtime that has not answered yet, besides the one that its answer causes.
const again = time.Minute

func unknown(s *state.State) chain.Outcome {
	after, message := s.Runtime.After, s.Runtime.Message
	if after == 0 {
		after = again
	}
	if message == "" {
		message = "the runtime of node " + s.VM.Status.NodeName + " has not answered yet"
	}
	return chain.Wait(v1alpha1.ReasonRuntimePending, message, after)
}
