package drainer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// deleted returns a scheduled pod that was deleted some time ago, with a grace period.
func deleted(ago, grace time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: ptr.To(metav1.NewTime(now.Add(grace - ago))), DeletionGracePeriodSeconds: ptr.To(int64(grace.Seconds())),
		},
		Spec: corev1.PodSpec{NodeName: "host"},
	}
}

func TestHowLongAMachineIsHeld(t *testing.T) {
	hour := &v1alpha1.Drain{Timeout: &metav1.Duration{Duration: time.Hour}}
	for name, test := range map[string]struct {
		pod            *corev1.Pod
		drain          *v1alpha1.Drain
		timeout, grace time.Duration
	}{
		"as the setting says":                {deleted(time.Minute, nodepod.GracePeriod), nil, 30 * time.Minute, nodepod.HoldPeriod},
		"as the KVMConfig says":              {deleted(time.Minute, nodepod.GracePeriod), hour, time.Hour, nodepod.HoldPeriod},
		"no timeout is as long as it may be": {deleted(time.Minute, nodepod.GracePeriod), &v1alpha1.Drain{Timeout: &metav1.Duration{}}, 0, nodepod.HoldPeriod},
		"less when the deletion says so":     {deleted(time.Minute, 20*time.Minute), hour, time.Hour, 10 * time.Minute},
		"not at all when there is no time":   {deleted(time.Minute, 5*time.Minute), hour, time.Hour, time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Timeout: 30 * time.Minute, Clock: testingclock.NewFakePassiveClock(now)}
			waited, timeout, grace := r.times(test.pod, &v1alpha1.KVMConfig{Spec: v1alpha1.KVMConfigSpec{Drain: test.drain}})
			if waited != time.Minute || timeout != test.timeout || grace != test.grace {
				t.Errorf("it is held since %s, pods may hold it for %s and its host for %s, want since a minute, %s and %s",
					waited, timeout, grace, test.timeout, test.grace)
			}
		})
	}
}
