package cluster

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// snapshotGrace is how late the start of a snapshot of etcd may be, and how long a snapshot may take beyond the
// deadline of its Job.
const snapshotGrace = 10 * time.Minute

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

// until returns how long it takes until shortly after t; zero if t is not set or has passed.
func until(t, now time.Time) time.Duration {
	if t.IsZero() || past(t, now) {
		return 0
	}
	return t.Sub(now) + time.Second
}
