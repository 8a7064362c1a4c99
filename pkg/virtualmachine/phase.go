package virtualmachine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// Phase returns what the virtual machine does now.
func (s *State) Phase() v1.Phase {
	switch {
	case s.Pod == nil && !s.Wanted():
		return v1.PhaseStopped
	case s.Pod == nil:
		return v1.PhaseStarting
	case !s.Wanted() || s.Pod.DeletionTimestamp != nil:
		return v1.PhaseStopping
	case s.Serves():
		return v1.PhaseRunning
	case s.failure() != "" || s.hostIsSilent():
		return v1.PhaseFailed
	}
	return v1.PhaseStarting
}

// Serves returns whether the pod's QEMU runs, on a host that answers.
func (s *State) Serves() bool {
	if s.Pod == nil || s.Pod.DeletionTimestamp != nil || !slices.ContainsFunc(s.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		return false
	}
	c, ok := s.runnerStatus()
	return ok && c.Ready
}

// hostIsSilent returns whether the pod has lost its readiness because its host is not Ready: then the node lifecycle
// controller changes the condition Ready, without a reason, and no other. A kubelet also changes ContainersReady, or gives
// a reason. The controller does not touch a pod that was not Ready before.
func (s *State) hostIsSilent() bool {
	var lost, ready bool
	for _, c := range s.Pod.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			lost = c.Status == corev1.ConditionFalse && c.Reason == ""
		case corev1.ContainersReady:
			ready = c.Status == corev1.ConditionTrue
		}
	}
	return lost && ready
}

// failure returns why the runner ended the last time, if it failed; empty otherwise.
func (s *State) failure() string {
	c, ok := s.runnerStatus()
	if !ok {
		return ""
	}
	ended := c.State.Terminated
	if ended == nil && c.State.Waiting != nil {
		ended = c.LastTerminationState.Terminated
	}
	if ended == nil || ended.ExitCode == 0 {
		return ""
	}
	why, _, _ := strings.Cut(strings.TrimSpace(ended.Message), "\n")
	if why == "" {
		why = fmt.Sprintf("exit code %d, %s", ended.ExitCode, ended.Reason)
	}
	return why
}

func (s *State) runnerStatus() (corev1.ContainerStatus, bool) {
	at := slices.IndexFunc(s.Pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == s.VM.Name })
	if at < 0 {
		return corev1.ContainerStatus{}, false
	}
	return s.Pod.Status.ContainerStatuses[at], true
}

// ConditionObjects is about the objects of the machine: Secret, ConfigMap and StatefulSet.
const ConditionObjects = "ObjectsReady"

// Reasons why a machine that is wanted does not run, and why one that is not wanted still does.
const (
	ReasonNoPod        = "PodMissing"
	ReasonUnscheduled  = "Unscheduled"
	ReasonPulling      = "ImageNotPulled"
	ReasonContainer    = "ContainerNotStarted"
	ReasonFailed       = "RunnerFailed"
	ReasonStarting     = "Starting"
	ReasonShuttingDown = "ShuttingDown"
	ReasonGuestDown    = "GuestShutDown"
	ReasonHostSilent   = "HostSilent"
	ReasonUnhealthy    = "MachineUnhealthy"
)

// Overdue returns whether the pod should have ended by now.
func (s *State) Overdue() bool {
	return s.Pod != nil && s.Pod.DeletionTimestamp != nil && s.Now.After(s.Pod.DeletionTimestamp.Add(slack))
}

// UntilOverdue returns how long the pod may still take to end; zero for a pod that is not ending.
func (s *State) UntilOverdue() time.Duration {
	if s.Pod == nil || s.Pod.DeletionTimestamp == nil || s.Overdue() {
		return 0
	}
	return s.Pod.DeletionTimestamp.Add(slack + time.Second).Sub(s.Now)
}

// Obstacle returns the reason, and a sentence, why the machine is not as declared; empty if it is.
func (s *State) Obstacle() (reason, message string) {
	switch phase := s.Phase(); {
	case phase == v1.PhaseStopped || phase == v1.PhaseRunning:
		return "", ""
	case phase == v1.PhaseStopping && s.Overdue():
		return ReasonHostSilent, fmt.Sprintf("host %s has not confirmed that pod %s ended, although its grace period is over; once it is certain that the host is off, "+
			"taint it with node.kubernetes.io/out-of-service, or delete the pod with --force", s.Pod.Spec.NodeName, s.Pod.Name)
	case s.Pod != nil && s.hostIsSilent():
		return ReasonHostSilent, fmt.Sprintf("host %s of pod %s is not Ready, so whether the machine runs is not known; what is declared takes effect when the host is back. "+
			"Once it is certain that the host is off, taint it with node.kubernetes.io/out-of-service, and it takes effect without the host", s.Pod.Spec.NodeName, s.Pod.Name)
	case phase == v1.PhaseStopping:
		return ReasonShuttingDown, fmt.Sprintf("the guest of pod %s shuts down; it has %d s", s.Pod.Name, s.Live.PowerdownTimeout)
	case s.Pod == nil:
		return ReasonNoPod, fmt.Sprintf("StatefulSet %s has not created its pod; if this lasts, see its events: kubectl -n %s describe statefulset %s", s.VM.Name, s.VM.Namespace, s.VM.Name)
	case parked(s.Pod, s.VM.Name):
		return ReasonGuestDown, "the guest shut itself down"
	}
	return s.obstacleOfPod()
}

func (s *State) obstacleOfPod() (reason, message string) {
	pod := s.Pod
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ReasonUnscheduled, fmt.Sprintf("pod %s is unschedulable: %s", pod.Name, c.Message)
		}
	}
	if why := s.failure(); why != "" {
		return ReasonFailed, fmt.Sprintf("the runner of pod %s failed and is restarted: %s", pod.Name, why)
	}
	c, ok := s.runnerStatus()
	if ok && c.State.Waiting != nil && c.State.Waiting.Message == "" {
		return ReasonContainer, fmt.Sprintf("pod %s waits: %s; if this lasts, see its events: kubectl -n %s describe pod %s", pod.Name, c.State.Waiting.Reason, pod.Namespace, pod.Name)
	}
	if ok && c.State.Waiting != nil {
		reason := ReasonContainer
		if strings.Contains(c.State.Waiting.Reason, "Image") {
			reason = ReasonPulling
		}
		return reason, fmt.Sprintf("pod %s waits: %s: %s", pod.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
	}
	if ok && c.State.Running != nil && readySince(pod, c.State.Running.StartedAt.Time) {
		return ReasonUnhealthy, fmt.Sprintf("the machine of pod %s is no longer ready: see kubectl -n %s exec %s -- %s runner status", pod.Name, pod.Namespace, pod.Name, Binary)
	}
	return ReasonStarting, fmt.Sprintf("the runner of pod %s starts the machine", pod.Name)
}
