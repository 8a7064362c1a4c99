package nodestep

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// runner returns the status of the runner's container; the zero value while the kubelet has not reported.
func runner(pod *corev1.Pod) corev1.ContainerStatus {
	return statusOf(pod.Status.ContainerStatuses, Container)
}

func statusOf(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
	if i < 0 {
		return corev1.ContainerStatus{}
	}
	return statuses[i]
}

// pullProblems are the reasons that a kubelet gives for a missing image (k8s.io/kubernetes/pkg/kubelet/images).
var pullProblems = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}

// atImage is about the container that gets the guest image. Pods that an earlier version created have none.
func atImage(s Seen) *Step {
	status := statusOf(s.Pod.Status.InitContainerStatuses, ImageContainer)
	switch state := status.State; {
	case runner(s.Pod).State.Running != nil:
		return nil
	case state.Running != nil && status.LastTerminationState.Terminated == nil:
		return &Step{Name: GettingImage, Message: "the host downloads the guest image; the log of container image has the progress"}
	case state.Running != nil:
		return &Step{Name: GettingImage, Message: "the host downloads the guest image; last time " + howItEnded(status.LastTerminationState.Terminated), Problem: true}
	case state.Terminated != nil && state.Terminated.ExitCode == 0:
		return nil
	case state.Terminated != nil:
		return &Step{Name: GettingImage, Message: "the host tries again to download the guest image; last time " + howItEnded(state.Terminated), Problem: true}
	case isCrashing(status):
		return &Step{Name: GettingImage, Message: "the host cannot download the guest image; last time " + howItEnded(status.LastTerminationState.Terminated), Problem: true}
	case state.Waiting != nil:
		return waiting(s.Pod, state.Waiting)
	}
	return nil
}

// atContainer is about a runner that does not run.
func atContainer(s Seen) *Step {
	status := runner(s.Pod)
	switch state := status.State; {
	case state.Running != nil:
		return nil
	case state.Terminated != nil:
		return &Step{Name: Failed, Message: "the machine is restarted; last time " + howItEnded(state.Terminated), Problem: state.Terminated.ExitCode != 0}
	case state.Waiting == nil:
		return creating(s.Pod)
	case isCrashing(status):
		return &Step{Name: Failed, Message: "the machine keeps failing; last time " + howItEnded(status.LastTerminationState.Terminated), Problem: true}
	default:
		return waiting(s.Pod, state.Waiting)
	}
}

func isCrashing(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated != nil
}

// waiting is about a container that the host has not started. Both containers have the same image.
func waiting(pod *corev1.Pod, w *corev1.ContainerStateWaiting) *Step {
	switch {
	case slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason):
		return creating(pod)
	case slices.Contains(pullProblems, w.Reason):
		return &Step{Name: PullingRunner, Message: "the host cannot pull the runner's image" + because("", pullError(w.Message)), Problem: true}
	}
	return &Step{Name: Starting, Message: "the host cannot start the runner" + because(w.Reason, w.Message), Problem: true}
}

// creating is about a container that is being created: once the pod's network is there, it waits for the image.
func creating(pod *corev1.Pod) *Step {
	sandbox := podCondition(pod, corev1.PodReadyToStartContainers)
	if sandbox != nil && sandbox.Status == corev1.ConditionTrue {
		return &Step{Name: PullingRunner, Message: "the host pulls the runner's image"}
	}
	return &Step{Name: Starting, Message: "the host prepares volumes and network of the node pod"}
}

// backOff matches the prefix of the error that a kubelet repeats while it backs off; without the prefix, attempt and
// pause have the same text.
var backOff = regexp.MustCompile(`^Back-off pulling image "[^"]*"(: ErrImagePull: )?`)

func pullError(message string) string { return backOff.ReplaceAllString(message, "") }

// consoleMark is between the runner's sentence and the end of the console in a termination message; see docs/runner.md.
const consoleMark = "\nconsole:\n"

// howItEnded describes the end of a runner, as the end of a sentence. The runner begins its message with "<Reason>:
// <sentence>"; a runner that was killed has no message.
func howItEnded(t *corev1.ContainerStateTerminated) string {
	message, _, _ := strings.Cut(t.Message, consoleMark)
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		return "it ended with " + message
	}
	return fmt.Sprintf("it ended with code %d%s", t.ExitCode, because(t.Reason, ""))
}

// Console returns the end of the guest's console that a runner stored when it ended; empty if there is none.
func Console(pod *corev1.Pod) string {
	status := runner(pod)
	for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
		if state.Terminated != nil {
			_, console, _ := strings.Cut(state.Terminated.Message, consoleMark)
			return console
		}
	}
	return ""
}
