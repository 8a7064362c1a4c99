package vitistack_test

import (
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

var (
	printables = []kubevirtv1.VirtualMachinePrintableStatus{
		"", kubevirtv1.VirtualMachineStatusStopped, kubevirtv1.VirtualMachineStatusProvisioning, kubevirtv1.VirtualMachineStatusStarting,
		kubevirtv1.VirtualMachineStatusRunning, kubevirtv1.VirtualMachineStatusPaused, kubevirtv1.VirtualMachineStatusStopping,
		kubevirtv1.VirtualMachineStatusTerminating, kubevirtv1.VirtualMachineStatusCrashLoopBackOff, kubevirtv1.VirtualMachineStatusMigrating,
		kubevirtv1.VirtualMachineStatusUnknown, kubevirtv1.VirtualMachineStatusUnschedulable, kubevirtv1.VirtualMachineStatusErrImagePull,
		kubevirtv1.VirtualMachineStatusImagePullBackOff, kubevirtv1.VirtualMachineStatusPvcNotFound, kubevirtv1.VirtualMachineStatusDataVolumeError,
		kubevirtv1.VirtualMachineStatusWaitingForVolumeBinding, kubevirtv1.VirtualMachineStatusWaitingForReceiver,
	}
	instances = []kubevirtv1.VirtualMachineInstancePhase{
		"absent", kubevirtv1.VmPhaseUnset, kubevirtv1.Pending, kubevirtv1.Scheduling, kubevirtv1.Scheduled, kubevirtv1.Running,
		kubevirtv1.Succeeded, kubevirtv1.Failed, kubevirtv1.WaitingForSync, kubevirtv1.Unknown,
	}
	strategies = []kubevirtv1.VirtualMachineRunStrategy{
		kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyRerunOnFailure,
		kubevirtv1.RunStrategyOnce, kubevirtv1.RunStrategyWaitAsReceiver, kubevirtv1.RunStrategyUnknown,
	}
	details = []func(*vitistack.Observation){
		func(*vitistack.Observation) {},
		func(o *vitistack.Observation) { o.Ready = true },
		func(o *vitistack.Observation) { o.Ready, o.Paused = true, true },
		func(o *vitistack.Observation) { o.Stopping = true },
		func(o *vitistack.Observation) { o.Unschedulable = "no node has room" },
		func(o *vitistack.Observation) { o.Ready, o.Failure = true, "FailedCreate" },
	}
	phases = []string{"", v1alpha1.PhasePending, v1alpha1.PhaseCreating, v1alpha1.PhaseRunning, v1alpha1.PhaseStopped, v1alpha1.PhaseFailed}
	fatal  = []string{
		v1alpha1.TemplateNotFound, v1alpha1.NetworkConfigurationNotFound, v1alpha1.StorageClassNotFound, v1alpha1.InvalidSpec,
		v1alpha1.MachineClassNotFound, v1alpha1.MachineClassDisabled, v1alpha1.NameConflict, v1alpha1.VMFailed,
	}
	validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
	// reasons are what the API names, by condition.
	reasons = map[string][]string{
		v1alpha1.ConditionReady: append(v1alpha1.ErrorTypes(), v1alpha1.ReasonRunning, v1alpha1.ReasonPending, v1alpha1.ReasonCreating,
			v1alpha1.ReasonStopped, v1alpha1.ReasonPaused, v1alpha1.ReasonStopping, v1alpha1.ReasonTerminating, v1alpha1.ReasonNodeUnreachable,
			v1alpha1.ReasonPVCPending, v1alpha1.ReasonNetworkFailed, v1alpha1.ReasonVMFailed),
		v1alpha1.ConditionVirtualMachineReady: {v1alpha1.ReasonVMCreated, v1alpha1.ReasonVMFailed},
		v1alpha1.ConditionStorageReady: {
			v1alpha1.ReasonPVCBound, v1alpha1.ReasonPVCPending, v1alpha1.StorageClassNotFound, v1alpha1.ReasonImporting, v1alpha1.CDINotInstalled, v1alpha1.ImportFailed,
		},
		v1alpha1.ConditionNetworkReady: {v1alpha1.ReasonNetworkConfigured, v1alpha1.ReasonNetworkFailed},
	}
)

// TestEveryStateHasAPhaseAndAReason: whatever KubeVirt says, whatever was before and whatever is wrong, the status keeps
// the promises of check.
func TestEveryStateHasAPhaseAndAReason(t *testing.T) {
	var states atomic.Int64
	t.Run("with a VirtualMachine", func(t *testing.T) {
		for _, printable := range printables {
			t.Run("KubeVirt says "+string(printable), func(t *testing.T) {
				t.Parallel()
				eachObservation(printable, func(o vitistack.Observation) {
					for _, last := range phases {
						for problems, results := range withFaults(o.RunStrategy) {
							s := state(last, problems)
							s.Observation = o
							states.Add(1)
							check(t, s, results)
						}
					}
				})
			})
		}
	})
	t.Run("without a VirtualMachine", func(t *testing.T) {
		for _, known := range []vitistack.KubeVirt{vitistack.Unknown, vitistack.Absent, vitistack.Installed} {
			for _, deleting := range []bool{false, true} {
				for _, last := range phases {
					eachFault(func(problem string, results []chain.Result) {
						s := state(last, problem)
						s.KubeVirt = known
						if deleting {
							s.Machine.DeletionTimestamp = &metav1.Time{Time: s.Now}
						}
						states.Add(1)
						check(t, s, results)
					})
				}
			}
		}
	})
	t.Logf("%d states", states.Load())
}

// eachObservation calls the function with everything that KubeVirt can say beside the word.
func eachObservation(printable kubevirtv1.VirtualMachinePrintableStatus, call func(vitistack.Observation)) {
	for _, phase := range instances {
		for _, strategy := range strategies {
			for _, detail := range details {
				o := vitistack.Observation{Created: true, Printable: printable, RunStrategy: strategy}
				if phase != "absent" {
					o.Instance, o.Phase, o.Node = true, phase, "node-1"
					o.Interfaces = []v1alpha1.NetworkInterfaceStatus{{Name: "default", MACAddress: "02:12:00:00:00:01", IPAddresses: []string{"10.0.0.1"}}}
				}
				detail(&o)
				call(o)
			}
		}
	}
}

// check fails the test unless the status of the state keeps what is promised about all statuses.
func check(t *testing.T, s *vitistack.State, results []chain.Result) {
	status := vitistack.Status(s, results)
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nobserved: %+v\nproblems: %v\nlast phase: %q\nresults: %+v\nstatus: %+v", fmt.Sprintf(format, args...),
			s.Observation, s.Problems, s.Machine.Status.Phase, results, status)
	}
	if !slices.Contains(phases[1:], status.Phase) || ready == nil {
		wrong("the phase is %q, and Ready is %v", status.Phase, ready)
	}
	for _, c := range status.Conditions {
		if !slices.Contains(reasons[c.Type], c.Reason) || !validReason.MatchString(c.Reason) || c.LastTransitionTime.IsZero() {
			wrong("condition %+v is not one of the API", c)
		}
	}
	if (ready.Status == metav1.ConditionTrue) != (ready.Reason == v1alpha1.ReasonRunning) {
		wrong("Ready is %s with reason %s", ready.Status, ready.Reason)
	}
	if message := status.FailureMessage; utf8.RuneCountInString(message) > 500 || (status.FailureReason == "") != (message == "") {
		wrong("failureReason is %q with message %q", status.FailureReason, message)
	}
	again := *s
	again.Machine = s.Machine.DeepCopy()
	again.Machine.Status, again.Machine.ResourceVersion, again.Now = status, "8", s.Now.Add(time.Minute)
	if next := vitistack.Status(&again, results); vitistack.Substantive(status, next) || next.LastUpdated != status.LastUpdated && !next.LastUpdated.Equal(status.LastUpdated) {
		wrong("another pass writes again: %s", cmp.Diff(status, next))
	}
	switch {
	case s.Machine.DeletionTimestamp != nil:
		if ready.Reason != v1alpha1.ReasonTerminating || s.Machine.Status.Phase != "" && s.Machine.Status.Phase != status.Phase {
			wrong("a Machine that is being deleted changes its phase or is not Terminating")
		}
	case s.KubeVirt == vitistack.Installed || s.KubeVirt == vitistack.Absent:
		checkAlive(s, results, status, *ready, wrong)
	}
}

// checkAlive checks what is promised about a Machine that is not being deleted and about which everything is known.
func checkAlive(s *vitistack.State, results []chain.Result, status v1alpha1.MachineStatus, ready metav1.Condition, wrong func(string, ...any)) {
	o, types := s.Observation, vitistack.Types(status)
	runs := o.Instance && o.Phase == kubevirtv1.Running
	for _, kind := range []string{v1alpha1.ConditionVirtualMachineReady, v1alpha1.ConditionStorageReady, v1alpha1.ConditionNetworkReady} {
		if ready.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(status.Conditions, kind) {
			wrong("Ready is True, and %s is not", kind)
		}
	}
	if ready.Status == metav1.ConditionTrue && (!runs || !o.Ready || o.Paused || o.Stopping || len(types) > 0) {
		wrong("Ready is True without a guest that runs and is ready")
	}
	if runs != (status.Phase == v1alpha1.PhaseRunning) && (runs || o.Phase != kubevirtv1.Unknown && !o.Stopping) {
		wrong("the guest runs: %t, but the phase is %s", runs, status.Phase)
	}
	if status.Phase == v1alpha1.PhaseFailed && !slices.ContainsFunc(types, func(errorType string) bool {
		return slices.Contains(fatal, errorType) && (!o.Created || errorType == v1alpha1.VMFailed)
	}) {
		wrong("the phase is Failed with %v", types)
	}
	if status.Phase == v1alpha1.PhaseStopped && o.RunStrategy == kubevirtv1.RunStrategyAlways && o.Phase != kubevirtv1.Unknown {
		wrong("a guest that always runs is Stopped")
	}
	if (status.FailureReason != "") != slices.Contains(v1alpha1.ErrorTypes(), ready.Reason) || status.FailureReason != "" && ready.Reason != status.FailureReason {
		wrong("Ready says %s and failureReason %s", ready.Reason, status.FailureReason)
	}
	if !runs && o.Phase != kubevirtv1.Unknown && (status.NodeName != "" || len(status.IPAddresses) > 0) {
		wrong("a guest that does not run has a node or addresses")
	}
	if runs && (slices.Contains(types, v1alpha1.VMFailed) || slices.Contains(types, v1alpha1.InsufficientResources)) {
		wrong("a guest that runs has %v", types)
	}
	if (status.VMIName != "") != o.Instance {
		wrong("vmiName is %q", status.VMIName)
	}
	for _, p := range s.Problems {
		if !slices.Contains(types, p.Type) {
			wrong("%s is not shown, but %v", p.Type, types)
		}
	}
	checkForgets(s, results, status, wrong)
}

// checkForgets checks that nothing but the phase counts of the status until now.
func checkForgets(s *vitistack.State, results []chain.Result, status v1alpha1.MachineStatus, wrong func(string, ...any)) {
	other := *s
	other.Machine = s.Machine.DeepCopy()
	old := &other.Machine.Status
	old.FailureReason, old.FailureMessage, old.NodeName, old.State = v1alpha1.VMFailed, "long ago", "node-9", "Paused"
	old.IPAddresses, old.VMIName = []string{"10.9.9.9"}, "old"
	for kind := range reasons {
		old.Conditions = append(old.Conditions, metav1.Condition{Type: kind, Status: "Unknown", Reason: "Old", Message: "long ago"})
	}
	slices.SortFunc(old.Conditions, func(a, b metav1.Condition) int { return slices.Index(order, a.Type) - slices.Index(order, b.Type) })
	got := vitistack.Status(&other, results)
	for _, conditions := range [][]metav1.Condition{got.Conditions, status.Conditions} {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	if vitistack.Substantive(status, got) {
		wrong("what was before is kept: %s", cmp.Diff(status, got))
	}
}

// order is the order of the conditions in a new status.
var order = []string{v1alpha1.ConditionVirtualMachineReady, v1alpha1.ConditionStorageReady, v1alpha1.ConditionNetworkReady, v1alpha1.ConditionReady}

// restartable are the phases of a guest to which changes wait for its next start.
var restartable = []kubevirtv1.VirtualMachineInstancePhase{kubevirtv1.Running, kubevirtv1.VmPhaseUnset, kubevirtv1.Pending, kubevirtv1.Scheduling}

// TestAPendingRestartChangesOnlyTheMessage of Ready, and awaits its approval while there is a guest. It is gone with
// the condition of the VirtualMachine.
func TestAPendingRestartChangesOnlyTheMessage(t *testing.T) {
	for _, printable := range printables {
		eachObservation(printable, func(o vitistack.Observation) {
			s := state(v1alpha1.PhaseRunning, "")
			s.Observation = o
			without := vitistack.Status(s, results(nil))
			s.Observation.RestartRequired = "cores"
			with := vitistack.Status(s, results(nil))
			ready := meta.FindStatusCondition(with.Conditions, v1alpha1.ConditionReady)
			if n := len(ready.Message) - len("; RestartRequired: cores"); n < 0 || ready.Message[n:] != "; RestartRequired: cores" {
				t.Fatalf("Ready says %q", ready.Message)
			} else {
				ready.Message = ready.Message[:n]
			}
			if awaited := meta.RemoveStatusCondition(&with.Conditions, v1alpha1.ConditionAwaitingRestart); awaited != (o.Instance && slices.Contains(restartable, o.Phase)) {
				t.Fatalf("a restart is awaited: %t", awaited)
			}
			if diff := cmp.Diff(without, with); diff != "" {
				t.Fatalf("more than the message changes (-without +with):\n%s", diff)
			}
			s.Machine.Status, s.Observation.RestartRequired = vitistack.Status(s, results(nil)), ""
			if next := vitistack.Status(s, results(nil)); vitistack.Substantive(without, next) {
				t.Fatalf("something stays:\n%s", cmp.Diff(without, next))
			}
		})
	}
}
