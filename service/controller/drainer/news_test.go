package drainer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestWordsOfRefusalsCauseNoPass: the next pass evicts again, and may be refused with other words each time.
func TestWordsOfRefusalsCauseNoPass(t *testing.T) {
	pod := func(version, reason, message string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: version}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Message: "m"}, {Type: key.ConditionDrained, Status: corev1.ConditionFalse, Reason: reason, Message: message},
			}},
		}
	}
	ready := pod("2", "Draining", "refusal 1")
	ready.Status.Conditions[0].Message = "other"
	gone := pod("2", "Draining", "refusal 1")
	gone.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		after *corev1.Pod
		want  bool
	}{
		"other words":               {pod("2", "Draining", "refusal 2"), false},
		"another reason":            {pod("2", "ReleaseAnnounced", "refusal 1"), true},
		"words of another reporter": {ready, true},
		"it is being deleted":       {gone, true},
		"the informer's own resync": {pod("1", "Draining", "refusal 1"), true},
	} {
		if got := (news{}).Update(event.UpdateEvent{ObjectOld: pod("1", "Draining", "refusal 1"), ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: it causes a pass: %t", name, got)
		}
	}
}
