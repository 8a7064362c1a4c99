package drain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Stopped returns whether no container of a pod runs or will run. A grace period of zero means that too: the kubelet
// sets it when all containers have ended, and so does a client that deletes a pod by force. It is not enough that its
// container has ended: the kubelet may have restarted it before it saw the deletion, and reports that later.
func Stopped(pod *corev1.Pod) bool {
	return joining.Ended(pod) || pod.DeletionTimestamp != nil && (pod.Spec.NodeName == "" || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0)
}

// Serves returns whether the runner of a pod reports its machine as healthy. The pod is Ready only together with its
// Node.
func Serves(pod *corev1.Pod) bool { return isTrue(pod, corev1.ContainersReady) }

// EndedByHost returns whether the kubelet of the host ends the pod, because the host shuts down or has no memory left.
func EndedByHost(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
	})
}

// Leaving returns whether the release of a pod's machine was announced or is confirmed, or whether its host ends it.
func Leaving(pod *corev1.Pod) bool {
	return Condition(pod).Reason == string(ReleaseAnnounced) || Confirmed(pod) || EndedByHost(pod)
}

// Confirmed returns whether the machine of a pod was released, or may have been.
func Confirmed(pod *corev1.Pod) bool {
	switch c := Condition(pod); Reason(c.Reason) {
	case Releasing, ReleaseFailed:
		return true
	default:
		return c.Status == corev1.ConditionTrue
	}
}

// ReleasedFor returns the reason why the machine of a pod was released, as the pod's condition says; empty while it is
// held.
func ReleasedFor(pod *corev1.Pod) Reason {
	if c := Condition(pod); c.Status == corev1.ConditionTrue {
		return Reason(c.Reason)
	}
	return ""
}

// Held returns the condition of a pod whose machine has not been released.
func Held(reason Reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionDrained, Status: corev1.ConditionFalse, Reason: string(reason), Message: message}
}

// Condition returns the condition of a pod that says how far its drain is; the zero value if there is none.
func Condition(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionDrained {
			return c
		}
	}
	return corev1.PodCondition{}
}

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
