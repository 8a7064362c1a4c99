// Package machinestep decides what to do next with the machine of a SmolVM: one step, from the declaration and from what
// the runtime of its node answers. It is pure.
//
// The steps, their order, reasons and texts are those of smolvm-operator. What differs:
//   - a change that cannot be made, or a disk that cannot shrink, does not keep a machine from being started or stopped;
//   - a machine that is to be stopped and to have larger disks is stopped first;
//   - a machine that is gone after it had been seen is not made again without being asked;
//   - a machine whose guest does not answer is not started again, which would cut its power;
//   - a machine that belongs to another object is not touched.
package machinestep

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
)

// Seen is what a step is decided on.
type Seen struct {
	// VM is the declaration.
	VM *v1alpha1.SmolVM
	// Unavailable says why the runtime of the node cannot be asked, also if there is no such node; empty if it was asked.
	Unavailable string
	// NodeUID is the UID of the node, as the runtime that was asked reports it; empty if it does not.
	NodeUID types.UID
	// Machine is what the runtime answered; nil if it has no machine of that name.
	Machine *api.Machine
	// SpecHash is what api.Machine.SpecHash of a machine would be that was created by the spec as it is now; empty if that is
	// not known.
	SpecHash string
	// Shortage says what the node lacks for the spec as it is now, see placing.Shortage.
	Shortage string
}

// Action is what is asked of the runtime, or of the API server.
type Action string

// The Actions.
const (
	// Nothing: the machine is as the spec wants it.
	Nothing Action = "Nothing"
	// Create, Start, Stop, Resize and Delete are requests to the runtime.
	Create Action = "Create"
	Start  Action = "Start"
	Stop   Action = "Stop"
	Resize Action = "Resize"
	Delete Action = "Delete"
	// Release: the machine is gone, or is given up. The finalizer is removed.
	Release Action = "Release"
	// Refuse: nothing can be done; Reason and Message say why.
	Refuse Action = "Refuse"
)

// Step is what to do next.
type Step struct {
	Action Action
	// Resize is the request, if that is the Action.
	Resize api.ResizeRequest
	// Reason and Message say what keeps the machine from becoming as the spec wants it, whatever the Action; without a Reason,
	// nothing does. A Release has them if it leaves something on the node.
	Reason, Message string
	// NodeUID is to be stored in status.nodeUID.
	NodeUID types.UID
}

// StateLost returns whether the state of the machine on its node is lost: the condition LocalStateLost is true then, with
// the reason and message of the step.
func (s Step) StateLost() bool {
	return s.Reason == v1alpha1.ReasonNodeReplaced || s.Reason == v1alpha1.ReasonMachineMissing
}

// Decide returns the next step.
func Decide(s Seen) Step {
	status := &s.VM.Status
	step := s.decide()
	// The stored UID is the only proof that a node was replaced. It stays until the machine is there, or is made again.
	step.NodeUID = status.NodeUID
	if s.NodeUID != "" && status.NodeName != "" && (status.NodeUID == "" || s.Machine != nil && !s.isForeign() || step.Action == Create) {
		step.NodeUID = s.NodeUID
	}
	return step
}

func (s Seen) decide() Step {
	vm := s.VM
	if vm.DeletionTimestamp != nil {
		return s.deletion()
	}
	if err := machinespec.Validate(vm); err != nil {
		return refuse(v1alpha1.ReasonInvalidSpec, err.Error())
	}
	switch {
	case vm.Status.NodeName == "":
		return refuse(v1alpha1.ReasonAwaitingNodeAssignment, "no node has been chosen")
	case s.Unavailable != "":
		return refuse(v1alpha1.ReasonRuntimeUnavailable, s.Unavailable)
	case s.Machine == nil:
		return s.absence()
	case s.isForeign():
		return refuse(v1alpha1.ReasonMachineNotOwned, fmt.Sprintf("machine %s of node %s belongs to SmolVM %s/%s with UID %s; it is left alone",
			s.Machine.Name, vm.Status.NodeName, s.Machine.Owner.Namespace, s.Machine.Owner.Name, s.Machine.Owner.UID))
	}
	return s.presence()
}

func refuse(reason, message string) Step {
	return Step{Action: Refuse, Reason: reason, Message: message}
}

// isForeign returns whether the machine belongs to another object. A runtime that knows no owners tells them apart by the
// names of machines.
func (s Seen) isForeign() bool {
	return s.Machine != nil && s.Machine.Owner != nil && s.Machine.Owner.UID != "" && s.Machine.Owner.UID != string(s.VM.UID)
}

func (s Seen) annotated(name string) bool { return s.VM.Annotations[name] == v1alpha1.AnnotationTrue }

// deletion is about a SmolVM that is being deleted.
func (s Seen) deletion() Step {
	node := s.VM.Status.NodeName
	switch {
	case node == "":
		return Step{Action: Release}
	case s.Unavailable != "" && s.annotated(v1alpha1.AnnotationForceDelete):
		return Step{
			Action: Release, Reason: v1alpha1.ReasonForceDeleteLocalState,
			Message: fmt.Sprintf("removing finalizer while runtime for node %s is unavailable; local VM state may remain", node),
		}
	case s.Unavailable != "":
		return refuse(v1alpha1.ReasonDeletionBlocked, fmt.Sprintf("owning node %s is unavailable; local VM state may still exist", node))
	case s.Machine == nil || s.isForeign():
		return Step{Action: Release}
	}
	return Step{Action: Delete}
}

// absence is about a machine that its node does not have.
func (s Seen) absence() Step {
	status := &s.VM.Status
	const way = `; to create it again with empty disks, set the annotation ` + v1alpha1.AnnotationRecreate + `: "` + v1alpha1.AnnotationTrue + `"`
	// An annotation that is older than the loss is not about it: the loss has to be stored first.
	allowed := s.annotated(v1alpha1.AnnotationRecreate) && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionLocalStateLost)
	switch name := machinespec.Name(s.VM); {
	case s.isReplaced() && !allowed:
		return refuse(v1alpha1.ReasonNodeReplaced, fmt.Sprintf("node %s was replaced since machine %s was created, and does not have its disks", status.NodeName, name)+way)
	case wasSeen(status) && !allowed:
		return refuse(v1alpha1.ReasonMachineMissing, fmt.Sprintf("node %s no longer has machine %s and its disks", status.NodeName, name)+way)
	case s.Shortage != "":
		return refuse(v1alpha1.ReasonInsufficientResources, fmt.Sprintf("node %s has no room for the machine: %s", status.NodeName, s.Shortage))
	}
	return Step{Action: Create}
}

// isReplaced returns whether the node is another one than the machine was bound to.
func (s Seen) isReplaced() bool {
	return s.VM.Status.NodeUID != "" && s.NodeUID != "" && s.VM.Status.NodeUID != s.NodeUID
}

// wasSeen returns whether the machine has been seen on its node. Statuses of smolvm-operator lack the condition, and have
// other traces.
func wasSeen(status *v1alpha1.SmolVMStatus) bool {
	if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLocalStateLost) != nil {
		return true
	}
	switch status.Phase {
	case v1alpha1.PhaseCreated, v1alpha1.PhaseRunning, v1alpha1.PhaseStopped:
		return true
	}
	return status.RuntimePID != nil || status.StorageGiB != nil || status.OverlayGiB != nil || status.StartTime != nil
}

// presence is about a machine that its node has.
func (s Seen) presence() Step {
	running := s.VM.Spec.Running
	wrong, growth := s.sizes()
	o := s.objection(wrong, growth)
	switch state := s.Machine.State; {
	case !running && isUp(state):
		return o.to(Stop)
	case state == api.StateUnreachable:
		return refuse(v1alpha1.ReasonMachineUnreachable, strings.TrimSuffix("the guest does not answer: "+s.Machine.Message, ": ")+
			"; to restart it, set spec.running to false, and to true once it has stopped")
	case growth && wrong == "" && isDown(state) && s.Shortage == "":
		step := o.to(Resize)
		step.Resize = s.resize()
		return step
	case running && state != api.StateRunning:
		return o.to(Start)
	case o.reason != "":
		return o.to(Refuse)
	}
	return Step{Action: Nothing, Message: s.reconciled()}
}

// isUp returns whether there is a process of the machine that can be stopped.
func isUp(state api.State) bool { return state == api.StateRunning || state == api.StateUnreachable }

// isDown returns whether disks can grow in a state. smolvm has states that are neither, such as frozen.
func isDown(state api.State) bool {
	return state == api.StateCreated || state == api.StateStopped || state == api.StateFailed
}

// An objection is what keeps a machine from becoming as its spec wants it.
type objection struct{ reason, message string }

func (o objection) to(action Action) Step {
	return Step{Action: action, Reason: o.reason, Message: o.message}
}

// objection returns the gravest of what cannot be done. wrong is what is wrong with the sizes of the disks.
func (s Seen) objection(wrong string, growth bool) objection {
	state, running := s.Machine.State, s.VM.Spec.Running
	switch drift := s.drift(); {
	case len(drift) > 0:
		return objection{v1alpha1.ReasonUnsupportedUpdate, strings.Join(drift, "; ")}
	case wrong != "":
		return objection{v1alpha1.ReasonInvalidStorageResize, wrong}
	case growth && s.Shortage != "":
		return objection{v1alpha1.ReasonInsufficientResources, fmt.Sprintf("node %s has no room for the larger disks: %s", s.VM.Status.NodeName, s.Shortage)}
	case growth && isUp(state) && running:
		return objection{v1alpha1.ReasonResizeRequiresStoppedMachine, "set spec.running=false before expanding storage"}
	case growth && !isUp(state) && !isDown(state):
		return objection{v1alpha1.ReasonResizeRequiresStoppedMachine, fmt.Sprintf("the machine is %s; its storage can be expanded once it is stopped", state)}
	}
	return objection{}
}
