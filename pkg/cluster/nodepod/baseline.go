package nodepod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// carrier is the memory that a runner needs to carry its guest's connections, in bytes: 512 in each direction. Each has
// two buffers of 64 KiB in the runner's stack, two of 16 KiB for copying, and 256 KiB in the kernel, or 384 KiB if the
// guest downloads.
const carrier = 512 << 20

// network makes the runner carry the guest's connections if it may not hand over the pod's network.
func network(s *state.Cluster, n state.Node) []corev1.EnvVar {
	if !s.Settings.Machine.Baseline() {
		return nil
	}
	return []corev1.EnvVar{{Name: "NETWORK", Value: "proxy"}, {Name: "PORTS", Value: strings.Join(ports(s, n), ",")}}
}

// ports returns the ports of a guest that others have to reach: through the cluster's Services, from other nodes, and
// by SSH.
func ports(s *state.Cluster, n state.Node) []string {
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

// imageSource returns the volume with the guest image: the host's cache, or the pod's own if it may not have
// directories of its host.
func imageSource(settings state.MachineSettings) corev1.VolumeSource {
	if !settings.Baseline() {
		return hostDirectory(hostImages)
	}
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(ownImage(settings), resource.BinarySI)}}
}

// ownImage returns how many bytes a guest image may take in a pod that has its own: twice the largest file, because a
// file may temporarily exist both compressed and unpacked, and kernel and initrd are small compared with the root file
// system.
func ownImage(settings state.MachineSettings) int64 {
	size, err := disk.ParseSize(settings.MaxImageFile)
	if err != nil || !settings.Baseline() {
		return 0
	}
	return 2 * size
}

// MeetsBaseline reports whether a pod meets the Pod Security level baseline, as far as this package can violate it: the
// pod is not privileged, has no directory of its host, and adds only capabilities that the level permits.
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
