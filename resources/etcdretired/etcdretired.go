// Package etcdretired is the handler of the Jobs on data of etcd that masters have left on hosts: one gives the directory another name, so that no
// machine begins with that data again, and a later one removes it. What may be done is decided and stored before (cluster.Snapshot.LookAtRetired).
package etcdretired

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Name of the handler.
const Name = "etcdretired"

const (
	// directories is where the directories of masters are in the container, in the volume of the name below.
	directories       = "/etcd"
	volumeDirectories = "etcd"
	// retries is how often a Job is tried once more.
	retries = 3
)

// New makes the handler. A Job that exists stays as it is: it is about one directory.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{Handler: Name, Kinds: []client.Object{&batchv1.Job{}}, Build: build, CreateOnly: true}
}

// build returns the Jobs. They are nothing that the cluster waits for, so what becomes of them is told by status.retired alone.
func build(s *cluster.Snapshot) (apply.Desired, error) {
	desired := apply.Desired{NotConfigured: true}
	for _, d := range s.Config.Status.Retired {
		if do, name := s.RetireJob(d); do != "" {
			desired.Objects = append(desired.Objects, job(s, d, do, name))
		}
	}
	return desired, nil
}

// job has no deadline: where the host is down its pod waits for it.
func job(s *cluster.Snapshot, d v1alpha1.RetiredData, do, name string) *batchv1.Job {
	command := []string{
		"etcd-data", do, "--directory=" + directories, "--name=" + key.EtcdDirectory(d.ID), "--as=" + key.RetiredDirectory(d.ID, d.Since.Time),
	}
	container := etcdjob.Runner(s, do, command, corev1.VolumeMount{Name: volumeDirectories, MountPath: directories})
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		// QEMU, with a user id of its own, may have made some of the files.
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
	labels := s.Labels(cluster.App(cluster.AppEtcdRetired))
	delete(labels, key.LabelManagedBy) // the pods are the Job's
	j := &batchv1.Job{
		ObjectMeta: s.Meta(name),
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](retries), Template: corev1.PodTemplateSpec{Spec: spec}},
	}
	j.Spec.Template.Labels = labels
	return j
}
