package drain_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
)

// conditions are all that the condition of a pod can say of its release.
var conditions = map[string]*corev1.PodCondition{
	"nothing":      nil,
	"it is held":   said(drain.Held(drain.Draining, "")),
	"announced":    said(drain.Held(drain.ReleaseAnnounced, "")),
	"confirmed":    said(drain.Held(drain.Releasing, "")),
	"not told yet": said(drain.Held(drain.ReleaseFailed, "")),
	"released":     said(corev1.PodCondition{Type: drain.Held("", "").Type, Status: corev1.ConditionTrue, Reason: string(drain.Drained)}),
}

func said(c corev1.PodCondition) *corev1.PodCondition { return &c }

// TestEveryNextStep decides in every small state, with every condition. A master that may count for the quorum is
// released only after its release was announced, verified and confirmed, and only as long as the decision stands.
func TestEveryNextStep(t *testing.T) {
	states := 0
	steps := map[drain.Step]int{}
	// What matters of a machine besides the decision.
	type situation struct {
		stopped, restoring, gone, hostGoes, over, master bool
		masters                                          int
		release                                          bool
		reason                                           drain.Reason
	}
	seen := map[situation]bool{}
	each(func(m drain.Machine) {
		if m.Released != "" {
			return
		}
		d := drain.Decide(m)
		s := situation{m.Stopped, m.Restoring, m.ClusterGone, m.HostShutsDown, m.Grace > 0 && m.Waited >= m.Grace, m.Master, m.Masters, d.Release, d.Reason}
		if seen[s] {
			return
		}
		seen[s] = true
		for name, condition := range conditions {
			states++
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
			if condition != nil {
				pod.Status.Conditions = []corev1.PodCondition{*condition}
			}
			m.Released = drain.ReleasedFor(pod)
			d := drain.Decide(m)
			step := drain.Next(pod, m, d)
			steps[step]++
			confirmed := name == "confirmed" || name == "not told yet"
			announced := name == "announced"
			wrong := ""
			switch step {
			case drain.StepFinish:
				if !m.Stopped {
					wrong = "the machine may run"
				}
			case drain.StepWait:
				if m.Released == "" {
					wrong = "nothing shuts the machine down"
				}
			case drain.StepWithdraw:
				wrong = "it is deleted"
			case drain.StepHold:
				if d.Release {
					wrong = "the machine may go"
				}
			case drain.StepAnnounce:
				if !d.NeedsAnnouncement(m) || confirmed || announced {
					wrong = "there is nothing to announce"
				}
			case drain.StepConfirm:
				if !d.Release || confirmed || !d.IgnoresQuorum(m) && (!announced || !drain.Verified(pod, m)) {
					wrong = "its release is not confirmed"
				}
			case drain.StepRelease:
				if !d.Release || (d.NeedsAnnouncement(m) || d.IgnoresQuorum(m)) && !confirmed || d.NeedsAnnouncement(m) && !drain.Verified(pod, m) {
					wrong = "it is not verified that the others stay"
				}
			default:
				wrong = "there is no such step"
			}
			if wrong != "" {
				t.Fatalf("%s: %+v with the condition %q leads to %s: %s", wrong, m, name, step, d.Reason)
			}
		}
	})
	for _, step := range []drain.Step{drain.StepFinish, drain.StepWait, drain.StepHold, drain.StepAnnounce, drain.StepConfirm, drain.StepRelease} {
		if steps[step] == 0 {
			t.Errorf("no state leads to %s", step)
		}
	}
	t.Logf("%d states: %v", states, steps)
}

// TestReleasesThatDoNotCountAreWithdrawn: a pod that is not deleted was released because its host was about to shut
// down. If the host stays, the pod counts again.
func TestReleasesThatDoNotCountAreWithdrawn(t *testing.T) {
	for name, condition := range conditions {
		for _, stays := range []bool{false, true} {
			pod := &corev1.Pod{}
			if condition != nil {
				pod.Status.Conditions = []corev1.PodCondition{*condition}
			}
			m := drain.Machine{Master: true, Masters: 3, Healthy: 2, HostStays: stays, Released: drain.ReleasedFor(pod)}
			want := drain.StepWait
			if stays && drain.Confirmed(pod) {
				want = drain.StepWithdraw
			}
			if got := drain.Next(pod, m, drain.Decide(m)); got != want {
				t.Errorf("%s, the host stays: %t: the next step is %s, want %s", name, stays, got, want)
			}
			m.HostStays, m.HostShutsDown = false, true
			if got := drain.Next(pod, m, drain.Decide(m)); got == drain.StepWithdraw || got == drain.StepHold {
				t.Errorf("%s, the host shuts down: the next step is %s", name, got)
			}
		}
	}
}
