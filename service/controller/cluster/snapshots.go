package cluster

import (
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// snapshotGrace is how long a snapshot of etcd that is due is waited for, and one that is being taken after its Job has to have ended.
const snapshotGrace = 10 * time.Minute

// endsBy is when a snapshot that is being taken has to have ended; zero when none is.
func endsBy(job *batchv1.CronJob) time.Time {
	if job == nil || len(job.Status.Active) == 0 || job.Status.LastScheduleTime == nil {
		return time.Time{}
	}
	return job.Status.LastScheduleTime.Add(etcdjob.Deadline*time.Second + snapshotGrace)
}

// beginsBy is when the next snapshot has to have begun; zero while one is being taken, and when none is to be. A Job that is refused,
// by a quota or a webhook, leaves no other trace in a CronJob than that none has begun since.
func beginsBy(job *batchv1.CronJob) time.Time {
	if job == nil || len(job.Status.Active) > 0 || ptr.Deref(job.Spec.Suspend, false) {
		return time.Time{}
	}
	schedule, err := cron.ParseStandard(job.Spec.Schedule)
	if err != nil {
		return time.Time{} // the API server refuses it, and tells why
	}
	times := []*metav1.Time{&job.CreationTimestamp, job.Status.LastScheduleTime, job.Status.LastSuccessfulTime}
	for _, entry := range job.ManagedFields {
		if entry.Manager == key.Operator {
			times = append(times, entry.Time) // another schedule since, or an end of a restore
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

// past says whether a time that there is has passed.
func past(t, now time.Time) bool { return !t.IsZero() && t.Before(now) }

// until is how long it takes to a time that there is, and past it; zero when there is none, or it is over.
func until(t, now time.Time) time.Duration {
	if t.IsZero() || past(t, now) {
		return 0
	}
	return t.Sub(now) + time.Second
}
