package drain

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// State is what the drainer knows of one node pod.
type State struct {
	// Pod is the pod, and Config the KVMConfig of its cluster; nil if the KVMConfig is gone.
	Pod    *corev1.Pod
	Config *v1alpha1.KVMConfig
	// Unowned means that the pod's namespace names no owner, so that nothing may be decided.
	Unowned bool
	// Machine is what is known of the pod's machine.
	Machine Machine
	// Slices are the EndpointSlices of the cluster.
	Slices []discoveryv1.EndpointSlice
}

// Step is what the drainer does with a node pod in one reconcile.
type Step string

const (
	// StepFinish lets the pod go: its machine does not run.
	StepFinish Step = "Finish"
	// StepWait does nothing: the machine was released and shuts down.
	StepWait Step = "Wait"
	// StepHold keeps the machine and empties its Node. It withdraws an announcement.
	StepHold Step = "Hold"
	// StepAnnounce records that a master is about to be released.
	StepAnnounce Step = "Announce"
	// StepConfirm records that the release of a master is confirmed, and then tells the runner.
	StepConfirm Step = "Confirm"
	// StepRelease tells the runner to shut the machine down.
	StepRelease Step = "Release"
	// StepWithdraw records that the release does not count: the pod is not deleted, and its host does not shut down.
	StepWithdraw Step = "Withdraw"
)

// Next returns the step that a decision leads to. The release of a master on which the quorum of etcd may depend is
// announced in one reconcile. Another reconcile decides with what the API server and etcd answer after that was
// recorded, see Verified, and confirms the release, see CountsForQuorum. A confirmed release is repeated until the
// runner has got the order, each time after it was verified again.
func Next(pod *corev1.Pod, m Machine, d Decision) Step {
	switch {
	case d.Finish:
		return StepFinish
	case pod.DeletionTimestamp == nil && !m.HostShutsDown:
		if m.HostStays && Confirmed(pod) {
			return StepWithdraw
		}
		return StepWait
	case m.Released != "":
		return StepWait
	case !d.Release:
		return StepHold
	case Confirmed(pod):
		return StepRelease
	case d.IgnoresQuorum(m):
		return StepConfirm
	case !d.NeedsAnnouncement(m):
		return StepRelease
	case Condition(pod).Reason == string(ReleaseAnnounced):
		return StepConfirm
	default:
		return StepAnnounce
	}
}

// Verified returns whether the state of a machine has to be read from the API server and from etcd before the next
// step: its release was announced or is confirmed, and would be next. The release may have been confirmed for a long
// time, because the host of the pod did not respond.
func Verified(pod *corev1.Pod, m Machine) bool {
	announced := Condition(pod).Reason == string(ReleaseAnnounced) || Confirmed(pod)
	return announced && m.Released == "" && Decide(m).NeedsAnnouncement(m)
}
