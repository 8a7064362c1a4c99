package nodepod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/disk"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// carrier is the memory that a runner takes to carry its guest's connections, in bytes: 512 in each direction, of which each holds two buffers of 64
// KiB in the runner's stack, two of 16 KiB on the way, and in the kernel 256 KiB, or 384 KiB where the guest downloads.
const carrier = 512 << 20

// network has the runner carry the guest's connections where it may not hand the pod's network over.
func network(s *cluster.Snapshot, n cluster.Node) []corev1.EnvVar {
	if !s.Settings.Machine.Baseline() {
		return nil
	}
	return []corev1.EnvVar{{Name: "NETWORK", Value: "proxy"}, {Name: "PORTS", Value: strings.Join(ports(s, n), ",")}}
}

// ports are those of a guest that others have to reach: through the cluster's Services, from other nodes, and by SSH.
func ports(s *cluster.Snapshot, n cluster.Node) []string {
	services := key.WorkerPorts(s.Config.Spec.KVM)
	if n.Role == key.RoleMaster {
		services = slices.Concat(key.MasterPorts(s.Cluster()), key.MemberPorts(), key.PublishedPorts(s.Cluster(), s.Access()))
	}
	numbers := []int32{key.PortSSH, key.PortKubelet}
	for _, p := range services {
		numbers = append(numbers, p.Port)
	}
	slices.Sort(numbers)
	list := []string{fmt.Sprintf("udp:%d", key.PortVXLAN)}
	for _, number := range slices.Compact(numbers) {
		list = append(list, fmt.Sprintf("tcp:%d", number))
	}
	return list
}

// imageSource is the volume with the guest image: the host's cache, or one of the pod's own where it may not have directories of its host.
func imageSource(settings cluster.MachineSettings) corev1.VolumeSource {
	if !settings.Baseline() {
		return hostDirectory(hostImages)
	}
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(ownImage(settings), resource.BinarySI)}}
}

// ownImage is the room that a guest image may take in a pod that has its own, in bytes: twice the largest file, because a file may be there
// compressed and unpacked for a while, and kernel and initrd are small beside the root file system.
func ownImage(settings cluster.MachineSettings) int64 {
	size, err := disk.ParseSize(settings.MaxImageFile)
	if err != nil || !settings.Baseline() {
		return 0
	}
	return 2 * size
}

// MeetsBaseline says whether a pod meets the level baseline of Pod Security, as far as what this package makes can break it: it is not
// privileged, has no directory of its host, and adds no capability that the level does not admit.
func MeetsBaseline(pod corev1.PodSpec) bool {
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
		return false
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		context := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		added := ptr.Deref(context.Capabilities, corev1.Capabilities{}).Add
		if ptr.Deref(context.Privileged, false) || slices.ContainsFunc(added, func(c corev1.Capability) bool { return slices.Contains(takeover, c) }) {
			return false
		}
	}
	return true
}
