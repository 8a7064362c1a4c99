package smolvm

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// status returns the whole status that follows from a run of the chain. As long as the runtime has not answered, it is
// what it was, except that it says so after some seconds.
func status(s *state.State, results []chain.Result) v1alpha1.SmolVMStatus {
	next := *s.VM.Status.DeepCopy()
	switch {
	case !s.Decidable():
		if s.Runtime.Message != "" {
			next.Conditions = awaiting(s, reconciled(results))
		}
		return next
	case goes(s, results):
		return next
	}
	next.ObservedGeneration = s.VM.Generation
	var wanted []metav1.Condition
	if s.Bound() {
		next.NodeUID = s.Step.NodeUID
		next.MachineName = machinespec.Name(s.VM)
		if s.Runtime.Reason == "" && s.Runtime.Machine != nil && s.Step.Reason != v1alpha1.ReasonMachineNotOwned {
			observe(&next, s.Runtime.Machine)
		}
		next.Phase, wanted = bound(s, reconciled(results))
	} else {
		next.Phase, wanted = unbound(s, results)
		if s.Decision.Node != "" {
			next.NodeName, next.NodeUID, next.MachineName = s.Decision.Node, s.DecisionUID, machinespec.Name(s.VM)
		}
	}
	next.Conditions = merge(s, wanted)
	return next
}

// goes returns whether nothing more is to be said of a SmolVM, whose deletion is under way.
func goes(s *state.State, results []chain.Result) bool {
	return s.VM.DeletionTimestamp != nil && s.Bound() && reconciled(results).Reason == v1alpha1.ReasonDeleting &&
		!meta.IsStatusConditionTrue(s.VM.Status.Conditions, v1alpha1.ConditionDeletionBlocked)
}

// unbound returns phase and conditions of a SmolVM that had no node when the pass began.
func unbound(s *state.State, results []chain.Result) (v1alpha1.Phase, []metav1.Condition) {
	const no = metav1.ConditionFalse
	binding := results[0].Condition(v1alpha1.ConditionScheduled)
	unknown := guest(metav1.ConditionUnknown, v1alpha1.ReasonGuestReadinessUnavailable, noMachine)
	switch {
	case s.Decision.Node != "":
		on := scheduled(s.Decision.Node)
		return v1alpha1.PhaseScheduled, append(ready(no, v1alpha1.ReasonScheduled, on.Message), on, unknown,
			condition(v1alpha1.ConditionReconciled, no, v1alpha1.ReasonRuntimePending, state.Creating))
	case binding.Reason == v1alpha1.ReasonInvalidSpec:
		return v1alpha1.PhaseFailed, append(ready(no, binding.Reason, binding.Message), unknown,
			condition(v1alpha1.ConditionReconciled, no, binding.Reason, binding.Message))
	}
	const awaiting = v1alpha1.ReasonAwaitingNodeAssignment
	return v1alpha1.PhasePending, append(ready(no, awaiting, binding.Message), unknown, binding,
		condition(v1alpha1.ConditionReconciled, no, awaiting, binding.Message))
}

// bound returns phase and conditions of a SmolVM with a node. r is what became of the handler of the machine.
func bound(s *state.State, r metav1.Condition) (v1alpha1.Phase, []metav1.Condition) {
	phase, ready := observed(s, r)
	wanted := append(ready, scheduled(s.VM.Status.NodeName), guestReady(s, r), r)
	blocked := r.Reason == v1alpha1.ReasonDeletionBlocked
	switch {
	case blocked:
		phase = v1alpha1.PhaseDeleting
		wanted = append(wanted, condition(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v1alpha1.ReasonRuntimeUnavailable, r.Message))
	case meta.FindStatusCondition(s.VM.Status.Conditions, v1alpha1.ConditionDeletionBlocked) != nil:
		wanted = append(wanted, condition(v1alpha1.ConditionDeletionBlocked, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the runtime of the node can be asked"))
	}
	switch {
	case s.Step.StateLost():
		wanted = append(wanted, condition(v1alpha1.ConditionLocalStateLost, metav1.ConditionTrue, s.Step.Reason, s.Step.Message))
	case s.Runtime.Reason == "" && s.Runtime.Machine != nil && s.Step.Reason != v1alpha1.ReasonMachineNotOwned:
		wanted = append(wanted, condition(v1alpha1.ConditionLocalStateLost, metav1.ConditionFalse, v1alpha1.ReasonMachineObserved, "the machine has been seen on its node"))
	}
	return phase, wanted
}

// phases are those of the states that have one.
var phases = map[api.State]v1alpha1.Phase{
	api.StateCreated: v1alpha1.PhaseCreated, api.StateRunning: v1alpha1.PhaseRunning, api.StateStopped: v1alpha1.PhaseStopped,
}

// observed returns the phase and Ready, which speak of the machine as it is.
func observed(s *state.State, r metav1.Condition) (v1alpha1.Phase, []metav1.Condition) {
	const no = metav1.ConditionFalse
	m := s.Runtime.Machine
	switch {
	case s.Step.Reason == v1alpha1.ReasonInvalidSpec:
		return v1alpha1.PhaseFailed, ready(no, r.Reason, r.Message)
	case s.Runtime.Reason != "":
		return v1alpha1.PhaseUnknown, ready(no, s.Runtime.Reason, s.Runtime.Message)
	case m == nil && r.Reason == v1alpha1.ReasonRuntimePending:
		return v1alpha1.PhaseScheduled, ready(no, v1alpha1.ReasonScheduled, scheduled(s.VM.Status.NodeName).Message)
	case m == nil, s.Step.Reason == v1alpha1.ReasonMachineNotOwned:
		return v1alpha1.PhaseUnknown, ready(no, r.Reason, r.Message)
	case m.State == api.StateRunning && r.Reason == v1alpha1.ReasonResizeRequiresStoppedMachine:
		return v1alpha1.PhaseRunning, ready(metav1.ConditionTrue, v1alpha1.ReasonResizePending, "storage expansion requires the machine to be stopped")
	case m.State == api.StateRunning:
		return v1alpha1.PhaseRunning, ready(metav1.ConditionTrue, v1alpha1.ReasonObserved, "smolvm machine is running")
	}
	phase, ok := phases[m.State]
	if !ok {
		phase = v1alpha1.PhaseUnknown
	}
	message := "smolvm machine is " + known(m.State)
	if m.Message != "" {
		message += ": " + m.Message
	}
	switch {
	case startFailed(s, r):
		return phase, ready(no, r.Reason, r.Message)
	case m.State == api.StateCreated && s.VM.Spec.Running:
		return phase, ready(no, v1alpha1.ReasonCreated, message)
	}
	return phase, ready(no, v1alpha1.ReasonObserved, message)
}

// known returns a state, in a length that fits a message: the runtime may say anything.
func known(state api.State) string {
	const most = 64
	return text.Beginning(string(state), most)
}

func workload(m *api.Machine) string {
	switch {
	case m.ExitCode != nil:
		return fmt.Sprintf("the image's process has ended with code %d", *m.ExitCode)
	case m.Workload == api.WorkloadRunning && m.State == api.StateRunning:
		return "the image's process runs"
	case m.Workload == api.WorkloadEnded:
		return "the image's process has ended"
	}
	return "the state of the image's process is not known"
}

// maxDigest and maxPorts bound what is taken of a runtime.
const (
	maxDigest = 256
	maxPorts  = 128
)

// observe takes over what the runtime reports, as far as the API takes it: a status that is refused would be written
// repeatedly.
func observe(next *v1alpha1.SmolVMStatus, m *api.Machine) {
	next.RuntimePID, next.ExitCode, next.StartTime = nil, nil, nil
	if m.PID > 0 && m.PID <= math.MaxInt32 {
		next.RuntimePID = new(int32(m.PID))
	}
	if m.ExitCode != nil && *m.ExitCode >= math.MinInt32 && *m.ExitCode <= math.MaxInt32 {
		next.ExitCode = new(int32(*m.ExitCode))
	}
	if m.StartedAt > 0 && m.StartedAt < endOfTime {
		next.StartTime = new(metav1.NewTime(time.Unix(m.StartedAt, 0)))
	}
	next.Network, next.ImageDigest = m.Network, text.Beginning(m.ImageDigest, maxDigest)
	next.StorageGiB, next.OverlayGiB = size(m.StorageGB), size(m.OverlayGB)
	next.Ports = nil
	for _, port := range m.Ports[:min(len(m.Ports), maxPorts)] {
		if port.Host == 0 || port.Guest == 0 {
			continue
		}
		next.Ports = append(next.Ports, v1alpha1.Port{HostPort: int32(port.Host), GuestPort: int32(port.Guest)})
	}
	next.Accelerator = ""
	if a := v1alpha1.Accelerator(m.Accelerator); a == v1alpha1.AcceleratorKVM || a == v1alpha1.AcceleratorTCG {
		next.Accelerator = a
	}
}

// endOfTime is the year 10000, which times in the API do not reach.
const endOfTime = 253402300800

func size(gib int64) *int64 {
	if gib <= 0 {
		return nil
	}
	return &gib
}
