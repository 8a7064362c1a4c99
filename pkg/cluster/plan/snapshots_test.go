package plan

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// hourly returns a CronJob that was created long ago and has worked so far.
func hourly(change func(*batchv1.CronJob)) *batchv1.CronJob {
	at := func(ago time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-ago))) }
	j := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(240 * time.Hour)}}
	j.Spec.Schedule = "0 * * * *"
	j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = at(time.Hour), at(59*time.Minute)
	change(j)
	return j
}

// TestWhatIsMissedOfSnapshots: a snapshot that does not start, and one that does not end, are noticed without an event.
func TestWhatIsMissedOfSnapshots(t *testing.T) {
	const deadline = etcdjob.Deadline * time.Second
	next := now.Add(snapshotGrace) // now is a full hour
	scheduled := func(ago time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-ago))) }
	for name, test := range map[string]struct {
		job           *batchv1.CronJob
		hangs         bool
		missed, looks time.Time
	}{
		"there is none":  {nil, false, time.Time{}, time.Time{}},
		"one is due now": {hourly(func(*batchv1.CronJob) {}), false, time.Time{}, next},
		"the last one did not start": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = scheduled(2*time.Hour), nil
			}),
			false, now.Add(-time.Hour), now.Add(-time.Hour).Add(snapshotGrace),
		},
		"the last one did not start, and is suspended": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.LastScheduleTime, j.Spec.Suspend = scheduled(2*time.Hour), new(true)
			}),
			false, time.Time{}, time.Time{},
		},
		"one has been late for less than the grace": {
			hourly(func(j *batchv1.CronJob) {
				j.Spec.Schedule, j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = "55 * * * *", scheduled(65*time.Minute), nil
			}),
			false, time.Time{}, now.Add(5 * time.Minute),
		},
		"the schedule was changed since": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = scheduled(48*time.Hour), nil
				j.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: key.Operator, Time: scheduled(time.Minute)}}
			}),
			false, time.Time{}, next,
		},
		"another party has changed it since": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = scheduled(2*time.Hour), nil
				j.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: scheduled(time.Minute)}}
			}),
			false, now.Add(-time.Hour), now.Add(-time.Hour).Add(snapshotGrace),
		},
		"the schedule is malformed": {hourly(func(j *batchv1.CronJob) { j.Spec.Schedule = "often" }), false, time.Time{}, time.Time{}},
		"it never runs":             {hourly(func(j *batchv1.CronJob) { j.Spec.Schedule = "0 0 31 2 *" }), false, time.Time{}, time.Time{}},
		"one is in progress": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.Active, j.Status.LastScheduleTime = make([]corev1.ObjectReference, 1), scheduled(time.Minute)
			}),
			false, time.Time{}, now.Add(deadline + snapshotGrace - time.Minute),
		},
		"one takes too long": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.Active, j.Status.LastScheduleTime = make([]corev1.ObjectReference, 1), scheduled(deadline+time.Hour)
			}),
			true, time.Time{}, now.Add(snapshotGrace - time.Hour),
		},
		"one is in progress, and it is not known since when": {
			hourly(func(j *batchv1.CronJob) {
				j.Status.Active, j.Status.LastScheduleTime = make([]corev1.ObjectReference, 1), nil
			}),
			false, time.Time{}, time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj(), Now: now}
			snapshots(s, test.job)
			if s.SnapshotHangs != test.hangs || !s.SnapshotMissed.Equal(test.missed) || !s.NextSnapshotLook.Equal(test.looks) {
				t.Errorf("it hangs: %t, missed: %v, next look: %v; want %t, %v, %v", s.SnapshotHangs, s.SnapshotMissed, s.NextSnapshotLook, test.hangs, test.missed, test.looks)
			}
		})
	}
}
