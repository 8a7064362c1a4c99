package apply_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// TestSinceWhenAConditionIsNotTrue: a Node that alternates between False and Unknown is unhealthy all the time.
func TestSinceWhenAConditionIsNotTrue(t *testing.T) {
	b := newBench(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "node"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "vm", Image: "example.com/vm"}}},
	}
	do(t, direct.Create(t.Context(), pod))
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for minute, step := range []struct {
		status corev1.ConditionStatus
		since  int // minutes
	}{
		{corev1.ConditionFalse, 0}, {corev1.ConditionUnknown, 0}, {corev1.ConditionFalse, 0},
		{corev1.ConditionTrue, 3}, {corev1.ConditionTrue, 3}, {corev1.ConditionUnknown, 5}, {corev1.ConditionFalse, 5},
	} {
		engine := apply.New(direct, live, testingclock.NewFakePassiveClock(begin.Add(time.Duration(minute)*time.Minute)))
		do(t, engine.SetPodCondition(t.Context(), now(t, pod), corev1.PodCondition{Type: key.ConditionNodeReady, Status: step.status}))
		have := now(t, pod).Status.Conditions
		if len(have) != 1 || have[0].Status != step.status || !have[0].LastTransitionTime.Time.Equal(begin.Add(time.Duration(step.since)*time.Minute)) {
			t.Errorf("minute %d: %+v, want %s since minute %d", minute, have, step.status, step.since)
		}
	}
}
