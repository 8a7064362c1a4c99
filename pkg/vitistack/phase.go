package vitistack

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// verdict is what a row of the phase table says: the phase, and Ready as far as no problem and no other condition
// decides it.
type verdict struct {
	phase, reason, message string
	ready                  metav1.ConditionStatus
	// state is KubeVirt's word.
	state string
}

// not returns the verdict of a Machine that is not ready.
func not(phase, reason, message, state string) verdict {
	return verdict{phase: phase, reason: reason, message: message, ready: metav1.ConditionFalse, state: state}
}

// fatal are the error types with which a Machine without VirtualMachine has failed. Nothing is created until the user, or
// an administrator, changes something.
var fatal = []string{
	v1alpha1.TemplateNotFound, v1alpha1.NetworkConfigurationNotFound, v1alpha1.StorageClassNotFound, v1alpha1.InvalidSpec,
	v1alpha1.MachineClassNotFound, v1alpha1.MachineClassDisabled, v1alpha1.NameConflict, v1alpha1.VMFailed,
}

// withoutVM returns the verdict of a Machine without VirtualMachine. begun says whether something of it exists, and waits
// is what the first unfinished handler waits for.
func withoutVM(problems []Problem, begun bool, waits string) verdict {
	switch {
	case has(problems, fatal...):
		return not(v1alpha1.PhaseFailed, v1alpha1.ReasonPending, waits, "")
	case has(problems, v1alpha1.CloudInitSourceNotFound):
		return not(v1alpha1.PhasePending, v1alpha1.ReasonPending, waits, "")
	case len(problems) > 0 || begun:
		return not(v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, orElse(waits, "the VirtualMachine is being created"), "")
	}
	return not(v1alpha1.PhasePending, v1alpha1.ReasonPending, orElse(waits, "nothing is created yet"), "")
}

// withVM returns the verdict of a Machine with a VirtualMachine, by the table of phases: the first row that matches. last
// is the phase until now.
func withVM(o Observation, last string) verdict {
	if o.Runs() {
		return running(o)
	}
	printed := string(o.Printable)
	_, fails := failing[o.Printable]
	switch {
	case fails:
		return not(v1alpha1.PhaseFailed, v1alpha1.VMFailed, "", printed)
	case o.Unschedulable != "", o.Printable == kubevirtv1.VirtualMachineStatusUnschedulable:
		return not(v1alpha1.PhaseCreating, v1alpha1.InsufficientResources, "", string(kubevirtv1.VirtualMachineStatusUnschedulable))
	case o.Printable == kubevirtv1.VirtualMachineStatusStopped && o.halts() && (!o.Instance || o.Phase == kubevirtv1.Succeeded):
		return not(v1alpha1.PhaseStopped, v1alpha1.ReasonStopped, "the guest is stopped; its run strategy is "+string(o.RunStrategy), printed)
	case o.failed():
		return not(v1alpha1.PhaseFailed, v1alpha1.VMFailed, "", printed)
	case o.Instance && o.Phase == kubevirtv1.Unknown:
		lost := not(stays(last), v1alpha1.ReasonNodeUnreachable, "KubeVirt does not know the state of the guest, because its node does not answer: "+o.Node, "Unknown")
		lost.ready = metav1.ConditionUnknown
		return lost
	case o.Stopping && o.halts():
		// The instance is gone or has ended, and the VirtualMachine is about to say Stopped.
		return not(stays(last), v1alpha1.ReasonStopping, "the guest is being stopped", printed)
	}
	if o.Printable == kubevirtv1.VirtualMachineStatusStopped && !o.halts() {
		printed = "" // the default of the API, until KubeVirt has looked
	}
	return not(v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, starts, printed)
}

// starts is the message of a Machine whose VirtualMachine exists and whose guest does not run yet.
const starts = "the guest is being started"

// running returns the verdict of a guest that runs.
func running(o Observation) verdict {
	switch {
	case o.Paused:
		return not(v1alpha1.PhaseRunning, v1alpha1.ReasonPaused, "the guest is paused", "Paused")
	case o.Stopping:
		return not(v1alpha1.PhaseRunning, v1alpha1.ReasonStopping, "the guest is being stopped", "Stopping")
	case !o.Ready:
		return not(v1alpha1.PhaseRunning, v1alpha1.ReasonCreating, orElse(o.NotReady, "the guest runs and is not ready yet"), "Running")
	}
	return verdict{phase: v1alpha1.PhaseRunning, reason: v1alpha1.ReasonRunning, message: "the guest runs", ready: metav1.ConditionTrue, state: "Running"}
}

// stays returns the last phase where it may stay without a guest that is seen running. Pending and Failed may not: a
// VirtualMachine exists, and nothing says that it failed.
func stays(last string) string {
	if last == v1alpha1.PhaseRunning || last == v1alpha1.PhaseStopped {
		return last
	}
	return v1alpha1.PhaseCreating
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
