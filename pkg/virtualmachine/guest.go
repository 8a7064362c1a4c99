package virtualmachine

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Next is what to do about a machine whose guest may have shut itself down.
type Next int

const (
	// NextNothing leaves the machine as it is.
	NextNothing Next = iota
	// NextStop declares the machine stopped, while its pod still exists: otherwise it would start again.
	NextStop
	// NextRestart deletes the pod, so that the StatefulSet creates another one with the current template.
	NextRestart
)

// reasonGuestShutDown is how the termination message of a runner begins whose guest shut itself down
// (keeper.ReasonGuestShutDown).
const reasonGuestShutDown = "GuestShutDown:"

// slack is how much later than the start of a container the kubelet may record that the former one was not ready, and
// by how much a node's clock may differ from itself.
const slack = 10 * time.Second

// AfterShutdown decides what to do about a guest that shut itself down. The kubelet restarts the container of its
// runner in the same pod. That runner is parked: it does not start the guest. It is not Ready until it starts the
// guest by itself, because no operator answered.
func (s *State) AfterShutdown() Next {
	switch {
	case !s.Wanted() || s.Pod == nil || s.Pod.DeletionTimestamp != nil || !parked(s.Pod, s.VM.Name):
		return NextNothing
	case s.VM.Spec.GuestShutdownStops:
		return NextStop
	case s.restartsSoon():
		return NextNothing
	}
	return NextRestart
}

// answerWithin is how long after its start a parked runner is replaced. It starts the guest by itself after 30 seconds
// (vmrunner.ParkedFor), and a guest that has just begun to boot does not notice that it is asked to shut down.
const answerWithin = 20 * time.Second

// restartsSoon returns whether a parked runner is about to start the guest by itself.
func (s *State) restartsSoon() bool {
	c, ok := s.runnerStatus()
	return ok && c.State.Running != nil && s.Now.Sub(c.State.Running.StartedAt.Time) > answerWithin
}

// parked returns whether the guest of a pod shut down and does not run again yet. A pod that was Ready since then runs
// its guest again, even if a probe has failed.
func parked(pod *corev1.Pod, container string) bool {
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container })
	if at < 0 {
		return false
	}
	c := pod.Status.ContainerStatuses[at]
	if ended := c.State.Terminated; ended != nil {
		return strings.HasPrefix(ended.Message, reasonGuestShutDown)
	}
	last := c.LastTerminationState.Terminated
	if last == nil || !strings.HasPrefix(last.Message, reasonGuestShutDown) || c.Ready {
		return false
	}
	return c.State.Running == nil || !readySince(pod, c.State.Running.StartedAt.Time)
}

// readySince returns whether the containers of a pod that are not ready were ready after a time.
func readySince(pod *corev1.Pod, since time.Time) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			return c.LastTransitionTime.After(since.Add(slack))
		}
	}
	return false
}
