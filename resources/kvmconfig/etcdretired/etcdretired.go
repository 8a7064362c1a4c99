// Package etcdretired is the handler of the Jobs on etcd data that masters have left on hosts. One Job renames the
// directory so that no machine starts with that data again, and a later one removes it. What may be done is decided and
// stored before (cluster.Snapshot.LookAtRetired).
package etcdretired

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// Name is the handler's name.
const Name = "etcdretired"

const (
	// directories is where the container has the directories of masters, in the volume of the name below.
	directories       = "/etcd"
	volumeDirectories = "etcd"
	// retries is how often a failed Job is retried.
	retries = 3
)

// New returns the handler. It does not change a Job that exists because each is about one directory.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: Name, Kinds: []client.Object{&batchv1.Job{}}, Build: build, CreateOnly: true}
}

// build returns the Jobs. The cluster does not wait for them, so only status.retired shows their result.
func build(s *state.Cluster) (apply.Desired, error) {
	desired := apply.Desired{NotConfigured: true}
	for _, d := range s.Config.Status.Retired {
		if do, name := s.RetireJob(d); do != "" {
			desired.Objects = append(desired.Objects, job(s, d, do, name))
		}
	}
	return desired, nil
}

// job has no deadline because its pod waits for a host that is down.
func job(s *state.Cluster, d v1alpha1.RetiredData, do, name string) *batchv1.Job {
	command := []string{
		"etcd-data", do, "--directory=" + directories, "--name=" + key.EtcdDirectory(d.ID), "--as=" + key.RetiredDirectory(d.ID, d.Since.Time),
	}
	container := etcdjob.Runner(s, do, command, corev1.VolumeMount{Name: volumeDirectories, MountPath: directories})
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		// QEMU runs with its own user id and may have created some of the files.
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}},
	}
	spec := etcdjob.Bare(s, container, corev1.Volume{Name: volumeDirectories, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: key.EtcdHostDirectories(s.ID(), d.EtcdMark), Type: ptr.To(corev1.HostPathDirectoryOrCreate),
	}}})
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{d.EtcdHost}},
		}}},
	}}}
	labels := s.Labels(state.App(state.AppEtcdRetired))
	delete(labels, key.LabelManagedBy) // the pods are the Job's
	j := &batchv1.Job{
		ObjectMeta: s.Meta(name),
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](retries), Template: corev1.PodTemplateSpec{Spec: spec}},
	}
	j.Spec.Template.Labels = labels
	return j
}
