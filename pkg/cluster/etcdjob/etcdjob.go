// Package etcdjob builds the common parts of the Jobs that work on etcd's data and snapshots. It is pure.
package etcdjob

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

const (
	// Snapshots is the directory with the snapshots in the containers of a Job.
	Snapshots = "/snapshots"
	// volumeSnapshots is the name of the volume with the snapshots.
	volumeSnapshots = "snapshots"
	// Deadline is how long a Job may take, in seconds. A Job that takes longer is stuck.
	Deadline = 3600
)

// Pod returns the pod spec of a Job with the volume of the snapshots.
func Pod(s *state.Cluster, first, then *corev1.Container, volumes ...corev1.Volume) corev1.PodSpec {
	spec := Bare(s, then, append([]corev1.Volume{{Name: volumeSnapshots, VolumeSource: source(s.EtcdSnapshots().Volume)}}, volumes...)...)
	if first != nil {
		spec.InitContainers = []corev1.Container{*first}
	}
	return spec
}

// Bare returns the pod spec of a Job with only these volumes. It runs where masters do, because their images and
// volumes are there.
func Bare(s *state.Cluster, only *corev1.Container, volumes ...corev1.Volume) corev1.PodSpec {
	pod := corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		RestartPolicy:                corev1.RestartPolicyNever,
		ServiceAccountName:           s.Namespace(),
		Containers:                   []corev1.Container{*only},
		Volumes:                      volumes,
	}
	nodepod.Place(&pod, key.RoleMaster, s.Settings.Pods)
	return pod
}

// Tool returns a container with the tools of the cluster's version of etcd.
func Tool(s *state.Cluster, name string, command []string, mounts ...corev1.VolumeMount) *corev1.Container {
	return container(name, cloudconfig.EtcdImage(s.Settings.Guest, s.Versions.Etcd), command, mounts)
}

// Runner returns a container with a command of the runner, such as "etcd-snapshot".
func Runner(s *state.Cluster, name string, command []string, mounts ...corev1.VolumeMount) *corev1.Container {
	return container(name, s.Settings.RunnerImage, append([]string{nodepod.Binary, "runner"}, command...), mounts)
}

func container(name, image string, command []string, mounts []corev1.VolumeMount) *corev1.Container {
	return &corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command, VolumeMounts: mounts,
		// There is no CPU request, because the Job would never start where masters fill their hosts.
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		// Errors should be visible in the pod's status, and not only in its log.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// SnapshotsMount returns the mount of the snapshots.
func SnapshotsMount(readOnly bool) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeSnapshots, MountPath: Snapshots, ReadOnly: readOnly}
}

func source(v v1alpha1.SnapshotVolume) corev1.VolumeSource {
	switch {
	case v.NFS != nil:
		return corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: v.NFS.Server, Path: v.NFS.Path}}
	case v.HostPath != "":
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: v.HostPath, Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}
	}
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.ClaimName}}
}
