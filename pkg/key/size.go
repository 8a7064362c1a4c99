package key

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// GuestMemory is the guest's memory in MiB, rounded down. Pod and guest read the same Kubernetes quantity: the original
// handed the text to QEMU, whose G is 2³⁰ while Kubernetes' is 10⁹, and big guests were killed for want of memory.
func GuestMemory(memory resource.Quantity) int64 { return memory.Value() / (1024 * 1024) }

// PodMemory is the memory that a node pod requests and may use, in whole MiB: the guest's; 1/128 of it for page tables of QEMU and kernel; 512
// MiB for the runner, QEMU and what the kernel holds for them; 8 MiB for each processor; and 1 GiB for translated code where the guest may be
// emulated, which is as large as QEMU lets its buffer grow. docs/benchmarks.md has what was measured.
func PodMemory(memory resource.Quantity, cpus int32, emulated bool) resource.Quantity {
	const mebi = 1 << 20
	bytes := memory.Value() + memory.Value()/128 + 512*mebi + int64(cpus)*8*mebi
	if emulated {
		bytes += 1024 * mebi
	}
	return *resource.NewQuantity((bytes+mebi-1)/mebi*mebi, resource.BinarySI)
}

// Disks are the sizes of a node's disks as QEMU writes them, G being 2³⁰ bytes.
type Disks struct {
	OS        string
	Container string
	Kubelet   string
}

// NodeDisks are the sizes of a node's disks: fixed for masters; for workers dockerVolumeSizeGB, else disk rounded to
// whole GB, else 50G for containers and 5G for the kubelet.
func NodeDisks(role string, m v1alpha1.Machine) Disks {
	disks := Disks{OS: "5G", Container: "50G", Kubelet: "5G"}
	if role == RoleMaster {
		return disks
	}
	if size := math.Round(m.Disk); size > 0 {
		disks.Container = fmt.Sprintf("%.0fG", size)
		disks.Kubelet = disks.Container
	}
	if m.DockerVolumeSizeGB > 0 {
		disks.Container = fmt.Sprintf("%dG", m.DockerVolumeSizeGB)
		disks.Kubelet = disks.Container
	}
	return disks
}

// DiskBytes is the size of all disks of a node that are files in its pod, in bytes.
func DiskBytes(role string, m v1alpha1.Machine) int64 {
	disks := NodeDisks(role, m)
	var bytes int64
	for _, size := range []string{disks.OS, disks.Container, disks.Kubelet} {
		quantity := resource.MustParse(size + "i") // the G of QEMU is the Gi of Kubernetes
		bytes += quantity.Value()
	}
	return bytes
}

// DiskLimit is the room that a node pod may take for its disks, in bytes. A kubelet that finds more ends the pod, so there is plenty beside
// what the disks can have: a file system counts what it needs to find the parts of a file with the file.
func DiskLimit(role string, m v1alpha1.Machine) int64 {
	bytes := DiskBytes(role, m)
	return bytes + bytes/20 + 1<<30
}
