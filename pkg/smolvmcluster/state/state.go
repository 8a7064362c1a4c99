// Package state is what a pass over a SmolVM decides on: the declaration, where it is placed, and what is known of its
// machine. It is pure.
package state

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/placing"
)

// Runtime is what is known of the runtime of a node, and of one machine there.
type Runtime struct {
	// Known is false until the runtime has been asked: nothing can be decided yet, and a pass follows once it can.
	Known bool
	// Reason and Message say why the runtime cannot be asked; empty if it can. A Message without a Reason says what is waited
	// for, once that takes long.
	Reason, Message string
	// NodeUID is the UID of the node, as its runtime reports it.
	NodeUID types.UID
	// Machine is nil if the runtime says that it has no such machine.
	Machine *api.Machine
	// After is when to look again without an event; zero for never.
	After time.Duration
}

// Observed is what was read for a pass.
type Observed struct {
	VM *v1alpha1.SmolVM
	// Cluster is the UID of the management cluster's namespace kube-system.
	Cluster types.UID
	// Decision is where the SmolVM is placed, if it has no node, and DecisionUID the UID of that node.
	Decision    placing.Decision
	DecisionUID types.UID
	// Runtime is that of its node, if it has one.
	Runtime Runtime
	// Shortage is what its node lacks for it, see placing.Shortage.
	Shortage string
	Now      time.Time
}

// State is what was read for a pass, and what follows from it.
type State struct {
	Observed

	// Step is the next step with the machine. It says nothing until the runtime is known.
	Step machinestep.Step
}

// Plan decides the next step.
func Plan(o Observed) *State {
	s := &State{Observed: o}
	s.Step = machinestep.Decide(machinestep.Seen{
		VM: o.VM, Unavailable: unavailable(o.Runtime), NodeUID: o.Runtime.NodeUID, Machine: o.Runtime.Machine,
		SpecHash: machinespec.Hash(&o.VM.Spec), Shortage: o.Shortage,
	})
	if s.Step.Reason == v1alpha1.ReasonRuntimeUnavailable {
		s.Step.Reason = o.Runtime.Reason
	}
	// It is not known that there is no machine, so nothing is released.
	if o.VM.DeletionTimestamp != nil && !s.Decidable() {
		s.Step.Action = machinestep.Nothing
	}
	return s
}

func unavailable(r Runtime) string {
	if r.Reason == "" {
		return ""
	}
	return r.Message
}

// Bound returns whether the SmolVM has a node.
func (s *State) Bound() bool { return s.VM.Status.NodeName != "" }

// Decidable returns whether the step can be taken: it rests on what the runtime answered, or needs no answer.
func (s *State) Decidable() bool {
	return !s.Bound() || s.Runtime.Known || s.Step.Reason == v1alpha1.ReasonInvalidSpec
}

// Creating is the message from the choice of a node until the machine is there.
const Creating = "the runtime of the node is asked for the machine"

// Progress is how far a step has got.
type Progress struct {
	// Reason and Message are those of the last failure, if the step has failed and is tried again.
	Reason, Message string
	// After is when to try again; zero while the step is under way: a pass follows when it ends.
	After time.Duration
}
