package virtualmachine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestWhatKeepsAMachineIsNamed: every pod that does not serve has a phase, a reason, and a sentence about what is
// missing.
func TestWhatKeepsAMachineIsNamed(t *testing.T) {
	began := time.Unix(1000, 0)
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}}
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 21, Message: "QEMUCrashed: it ended\n\nconsole:\n"}}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string, after time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(began.Add(after))}
	}
	unready := func(after time.Duration) []corev1.PodCondition {
		const reason = "ContainersNotReady"
		return []corev1.PodCondition{
			condition(corev1.PodReady, corev1.ConditionFalse, reason, "", after), condition(corev1.ContainersReady, corev1.ConditionFalse, reason, "", after),
		}
	}
	ready := condition(corev1.ContainersReady, corev1.ConditionTrue, "", "", time.Minute)
	for name, test := range map[string]struct {
		conditions      []corev1.PodCondition
		now, last       corev1.ContainerState
		stopped         bool
		goneFor         time.Duration
		phase           v1.Phase
		reason, message string
	}{
		"it serves": {
			conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionTrue, "", "", time.Minute), ready}, now: runs, phase: v1.PhaseRunning,
		},
		"no node suits": {
			conditions: []corev1.PodCondition{condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/3 nodes", 0)},
			phase:      v1.PhaseStarting, reason: ReasonUnscheduled, message: "0/3 nodes",
		},
		"the image is missing": {
			conditions: unready(0), now: waits("ImagePullBackOff", "not found"), phase: v1.PhaseStarting, reason: ReasonPulling, message: "ImagePullBackOff: not found",
		},
		"the container is created": {
			conditions: unready(0), now: waits("ContainerCreating", ""), phase: v1.PhaseStarting, reason: ReasonContainer, message: "describe pod tiny-0",
		},
		"the runner starts": {conditions: unready(0), now: runs, phase: v1.PhaseStarting, reason: ReasonStarting, message: "starts the machine"},
		"the runner failed": {
			conditions: unready(0), now: waits("CrashLoopBackOff", "back-off"), last: crashed, phase: v1.PhaseFailed, reason: ReasonFailed, message: "QEMUCrashed: it ended",
		},
		"the machine is unhealthy": {conditions: unready(time.Minute), now: runs, phase: v1.PhaseStarting, reason: ReasonUnhealthy, message: "runner status"},
		"the host is silent": {
			conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, "", "", time.Hour), ready}, now: runs,
			phase: v1.PhaseFailed, reason: ReasonHostSilent, message: "host node-1 of pod tiny-0 is not Ready",
		},
		"the host is silent, and the pod is evicted": {
			conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, "", "", time.Hour), ready}, now: runs, goneFor: time.Second,
			phase: v1.PhaseStopping, reason: ReasonHostSilent, message: "host node-1 of pod tiny-0 is not Ready",
		},
		"the host is silent, and the machine is to stop": {
			conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, "", "", time.Hour), ready}, now: runs, stopped: true,
			phase: v1.PhaseStopping, reason: ReasonHostSilent, message: "what is declared takes effect when the host is back",
		},
		"another readiness is missing": {
			conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady", "", 0), ready}, now: runs,
			phase: v1.PhaseStarting, reason: ReasonUnhealthy,
		},
		"it shuts down":     {now: runs, stopped: true, phase: v1.PhaseStopping, reason: ReasonShuttingDown, message: "it has 900 s"},
		"it should be gone": {now: runs, goneFor: time.Minute, phase: v1.PhaseStopping, reason: ReasonHostSilent, message: "although its grace period is over"},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "tiny-0"}, Spec: corev1.PodSpec{NodeName: "node-1"},
			Status: corev1.PodStatus{
				Conditions:        test.conditions,
				ContainerStatuses: []corev1.ContainerStatus{{Name: "tiny", State: test.now, LastTerminationState: test.last, Ready: test.phase == v1.PhaseRunning}},
			},
		}
		if test.goneFor > 0 {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(began))
		}
		s := Plan(Observed{Pod: pod, Now: began.Add(test.goneFor), VM: machine(func(vm *v1.VirtualMachine) {
			if test.stopped {
				vm.Spec.VM.State = v1.StateStopped
			}
		})})
		reason, message := s.Obstacle()
		if s.Phase() != test.phase || reason != test.reason || !strings.Contains(message, test.message) {
			t.Errorf("%s: it is %s, %s: %s", name, s.Phase(), reason, message)
		}
	}
}
