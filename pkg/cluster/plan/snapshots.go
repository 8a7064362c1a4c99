package plan

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// snapshotGrace is how late the start of a snapshot of etcd may be, and how long a snapshot may take beyond the
// deadline of its Job.
const snapshotGrace = 10 * time.Minute

// snapshots adds how the snapshots of etcd go; job is the CronJob that takes them, nil if there is none.
func snapshots(s *state.Cluster, job *batchv1.CronJob) {
	ends, begins := endsBy(job), beginsBy(job)
	s.SnapshotJob = job
	s.SnapshotFailed = meta.IsStatusConditionFalse(s.Config.Status.Conditions, state.ConditionSnapshots)
	s.SnapshotHangs = past(ends, s.Now)
	if past(begins, s.Now) {
		s.SnapshotMissed = begins.Add(-snapshotGrace)
	}
	if s.NextSnapshotLook = ends; ends.IsZero() {
		s.NextSnapshotLook = begins
	}
}

// endsBy returns when the snapshot in progress has to have ended; zero if there is none.
func endsBy(job *batchv1.CronJob) time.Time {
	if job == nil || len(job.Status.Active) == 0 || job.Status.LastScheduleTime == nil {
		return time.Time{}
	}
	return job.Status.LastScheduleTime.Add(etcdjob.Deadline*time.Second + snapshotGrace)
}

// beginsBy returns when the next snapshot has to have started; zero while one is in progress and if none is scheduled.
// If a quota or a webhook rejects the Job, the only trace in the CronJob is that no Job has started.
func beginsBy(job *batchv1.CronJob) time.Time {
	if job == nil || len(job.Status.Active) > 0 || ptr.Deref(job.Spec.Suspend, false) {
		return time.Time{}
	}
	schedule, err := cron.ParseStandard(job.Spec.Schedule)
	if err != nil {
		return time.Time{} // the API server rejects it and reports why
	}
	times := []*metav1.Time{&job.CreationTimestamp, job.Status.LastScheduleTime, job.Status.LastSuccessfulTime}
	for _, entry := range job.ManagedFields {
		if entry.Manager == key.Operator {
			times = append(times, entry.Time) // another schedule since, or the end of a restore
		}
	}
	var since time.Time
	for _, t := range slices.DeleteFunc(times, func(t *metav1.Time) bool { return t == nil }) {
		if t.After(since) {
			since = t.Time
		}
	}
	next := schedule.Next(since.UTC())
	if since.IsZero() || next.IsZero() {
		return time.Time{}
	}
	return next.Add(snapshotGrace)
}

// past returns whether t is set and has passed.
func past(t, now time.Time) bool { return !t.IsZero() && t.Before(now) }
