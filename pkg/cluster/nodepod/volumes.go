package nodepod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Names of the pod's volumes.
const (
	volumePublic  = "cloud-config"
	volumePrivate = "cloud-config-private"
	volumeEtcd    = "etcd-data"
	volumeImages  = "images"
	volumeDisks   = "rootfs"
)

func volumes(s *state.Cluster, n state.Node) []corev1.Volume {
	bootData := key.BootDataName(n.Role, s.ID(), n.ID)
	list := []corev1.Volume{
		{Name: volumePublic, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: bootData}, DefaultMode: ptr.To[int32](0o444),
		}}},
		{Name: volumePrivate, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: bootData, DefaultMode: ptr.To[int32](0o400)}}},
		{Name: volumeImages, VolumeSource: imageSource(s.Settings.Machine)},
		{Name: volumeDisks, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(key.DiskLimit(n.Role, n.Machine), resource.BinarySI),
		}}},
	}
	if n.Role == key.RoleMaster {
		list = append(list, corev1.Volume{Name: volumeEtcd, VolumeSource: EtcdSource(s, n)})
	}
	for _, v := range n.HostVolumes() {
		list = append(list, corev1.Volume{Name: hostVolumeName(v.MountTag), VolumeSource: claim(key.HostVolumeClaimName(s.ID(), n.ID, v.MountTag))})
	}
	return list
}

func mounts(n state.Node) []corev1.VolumeMount {
	list := []corev1.VolumeMount{
		{Name: volumePublic, MountPath: PublicBootData, ReadOnly: true},
		{Name: volumePrivate, MountPath: PrivateBootData, ReadOnly: true},
		{Name: volumeImages, MountPath: Images, ReadOnly: true},
		{Name: volumeDisks, MountPath: Disks},
	}
	if n.Role == key.RoleMaster {
		list = append(list, corev1.VolumeMount{Name: volumeEtcd, MountPath: EtcdData})
	}
	for _, v := range n.HostVolumes() {
		list = append(list, corev1.VolumeMount{Name: hostVolumeName(v.MountTag), MountPath: v.HostPath})
	}
	return list
}

// EtcdSource returns the volume with the data of a master's etcd.
func EtcdSource(s *state.Cluster, n state.Node) corev1.VolumeSource {
	if s.EtcdOnVolume() {
		return claim(key.EtcdClaimName(s.ID(), n.ID))
	}
	return hostDirectory(key.EtcdHostPath(s.ID(), n.EtcdMark, n.ID))
}

// EtcdDirectory returns the directory of the host that EtcdSource gave to a master; empty if there is none.
func EtcdDirectory(pod *corev1.PodSpec) string {
	for _, v := range pod.Volumes {
		if v.Name == volumeEtcd && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

func hostDirectory(path string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}
}

func claim(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// hostVolumeName returns the mount tag, as in the original, unless a volume of the machine itself has that name.
func hostVolumeName(tag string) string {
	switch tag {
	case volumePublic, volumePrivate, volumeEtcd, volumeImages, volumeDisks:
		return "data-" + tag
	}
	return tag
}
