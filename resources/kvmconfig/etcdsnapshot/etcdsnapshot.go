// Package etcdsnapshot is the handler of the CronJob that takes snapshots of a cluster's etcd, and of the Secret that
// it needs.
package etcdsnapshot

import (
	"fmt"
	"path"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

const (
	// pairDirectory is where the key pair is in the container, in the volume of the same name.
	pairDirectory = "/pki"
	volumePair    = "pki"
	// saving bounds the time of one snapshot. etcdctl gives up a connection after five seconds.
	saving = "30m"
	// finished is how many succeeded and how many failed Jobs are kept.
	finished = 2
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "etcdsnapshot", Kinds: []client.Object{&corev1.Secret{}, &batchv1.CronJob{}}, Build: build,
	}
}

func build(s *state.Cluster) (apply.Desired, error) {
	snapshots := s.EtcdSnapshots()
	if snapshots == nil || snapshots.Schedule == "" {
		return apply.Desired{NotConfigured: true}, nil
	}
	pair, issued := s.Certificates[pki.EtcdClient]
	if s.VersionsErr != nil || !issued {
		meta := s.Meta(key.EtcdSnapshotName)
		return apply.Desired{Keep: []client.Object{&corev1.Secret{ObjectMeta: meta}, &batchv1.CronJob{ObjectMeta: meta}}}, s.VersionsErr
	}
	secret := &corev1.Secret{
		ObjectMeta: s.Meta(key.EtcdSnapshotName),
		Data:       map[string][]byte{"ca.crt": pair.CA, corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key},
		Type:       corev1.SecretTypeTLS,
	}
	return apply.Desired{Objects: []client.Object{secret, cronJob(s)}, Wait: wait(s)}, nil
}

const failed = "SnapshotFailed"

// wait reports snapshots that fail or do not start, until one succeeds. It does not report one that is in progress.
func wait(s *state.Cluster) *chain.Outcome {
	if s.SnapshotJob == nil {
		return nil
	}
	if !s.SnapshotMissed.IsZero() {
		return ptr.To(chain.Wait(failed, fmt.Sprintf("no snapshot of etcd has begun at %[3]s, as scheduled: see kubectl --namespace=%[1]s describe cronjobs %[2]s; "+
			"the next one is tried as scheduled, or with kubectl --namespace=%[1]s create job --from=cronjob/%[2]s now",
			s.Namespace(), key.EtcdSnapshotName, s.SnapshotMissed.UTC().Format(time.RFC3339)), 0))
	}
	status := s.SnapshotJob.Status
	taken := status.LastSuccessfulTime != nil && !status.LastSuccessfulTime.Before(status.LastScheduleTime)
	switch {
	case status.LastScheduleTime == nil || taken:
		return nil
	case s.SnapshotHangs && len(status.Active) > 0:
		return ptr.To(chain.Wait(failed, fmt.Sprintf("Job %[2]s does not end, and no snapshot is taken until it has: its pod may be on a host that does not answer, "+
			"or its volume may hang; fix that, or kubectl --namespace=%[1]s delete job %[2]s, and its pods with --force if their host is gone",
			s.Namespace(), status.Active[0].Name), 0))
	case len(status.Active) > 0 && !s.SnapshotFailed:
		return nil
	}
	return ptr.To(chain.Wait(failed, fmt.Sprintf("the last snapshot of etcd failed: see kubectl --namespace=%[1]s describe pods --selector=app=%[2]s; "+
		"the next one is tried as scheduled, or with kubectl --namespace=%[1]s create job --from=cronjob/%[2]s now", s.Namespace(), key.EtcdSnapshotName), 0))
}

func cronJob(s *state.Cluster) *batchv1.CronJob {
	snapshots := s.EtcdSnapshots()
	labels := s.Labels(state.App(key.EtcdSnapshotName))
	delete(labels, key.LabelManagedBy) // the Jobs are the CronJob's
	job := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](2), ActiveDeadlineSeconds: ptr.To[int64](etcdjob.Deadline),
		Template: corev1.PodTemplateSpec{Spec: pod(s)},
	}}
	job.Labels, job.Spec.Template.Labels = labels, labels
	return &batchv1.CronJob{
		ObjectMeta: s.Meta(key.EtcdSnapshotName),
		Spec: batchv1.CronJobSpec{
			Schedule: snapshots.Schedule, TimeZone: ptr.To("Etc/UTC"),
			ConcurrencyPolicy: batchv1.ForbidConcurrent, StartingDeadlineSeconds: ptr.To[int64](etcdjob.Deadline),
			// A snapshot of data that is about to be replaced would displace an older one that may be needed.
			Suspend:                    ptr.To(s.Restore.Phase() != etcd.NotRestoring && !s.RestoreBlocked()),
			SuccessfulJobsHistoryLimit: ptr.To[int32](finished), FailedJobsHistoryLimit: ptr.To[int32](finished),
			JobTemplate: job,
		},
	}
}

// pod saves a snapshot from a master that is Ready, and keeps it if it is intact.
func pod(s *state.Cluster) corev1.PodSpec {
	file := s.ID() + "-$(POD_NAME)" + etcdfiles.Unchecked
	name := []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}}
	save := etcdjob.Tool(s, "save", []string{
		"etcdctl", fmt.Sprintf("--endpoints=https://%s:%d", key.ServiceHost(key.RoleMaster, s.ID(), s.Settings.ClusterDomain), key.PortEtcdClient),
		"--cacert=" + pairDirectory + "/ca.crt", "--cert=" + pairDirectory + "/" + corev1.TLSCertKey, "--key=" + pairDirectory + "/" + corev1.TLSPrivateKeyKey,
		"--command-timeout=" + saving, "snapshot", "save", path.Join(etcdjob.Snapshots, file),
	}, etcdjob.SnapshotsMount(false), corev1.VolumeMount{Name: volumePair, MountPath: pairDirectory, ReadOnly: true})
	keep := etcdjob.Runner(s, "keep", []string{
		"etcd-snapshot", "keep", "--directory=" + etcdjob.Snapshots, "--cluster=" + s.ID(), fmt.Sprintf("--keep=%d", s.EtcdSnapshots().Keep), file,
	}, etcdjob.SnapshotsMount(false))
	save.Env, keep.Env = name, name
	return etcdjob.Pod(s, save, keep, corev1.Volume{Name: volumePair, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: key.EtcdSnapshotName, DefaultMode: ptr.To[int32](0o400)},
	}})
}
