package key

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// GuestMemory is the guest's memory in MiB, rounded down. Pod and guest use the same Kubernetes quantity: the original
// passed the text to QEMU, whose G is 2³⁰ while Kubernetes' is 10⁹, and big guests were killed for lack of memory.
func GuestMemory(memory resource.Quantity) int64 { return memory.Value() / (1024 * 1024) }

// PodMemory is the memory that a node pod requests and may use, in whole MiB: the guest's; 1/128 of it for page tables
// of QEMU and kernel; 512 MiB for the runner, QEMU and what the kernel allocates for them; 8 MiB for each processor;
// and, if the guest may be emulated, 1 GiB for translated code, which is the maximum size of QEMU's buffer.
// docs/benchmarks.md has the measurements.
func PodMemory(memory resource.Quantity, cpus int32, emulated bool) resource.Quantity {
	const mebi = 1 << 20
	bytes := memory.Value() + memory.Value()/128 + 512*mebi + int64(cpus)*8*mebi
	if emulated {
		bytes += 1024 * mebi
	}
	return *resource.NewQuantity((bytes+mebi-1)/mebi*mebi, resource.BinarySI)
}

// Disks are the sizes of a node's disks as QEMU writes them, where G is 2³⁰ bytes.
type Disks struct {
	OS        string
	Container string
	Kubelet   string
}

// NodeDisks returns the sizes of a node's disks: fixed for masters; for workers dockerVolumeSizeGB, otherwise disk
// rounded to whole GB, otherwise 50G for containers and 5G for the kubelet.
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

// DiskLimit is how many bytes a node pod may use for its disks. A kubelet that finds more ends the pod, so the limit is
// well above the size of the disks: a file system counts the metadata that locates the parts of a file with the file.
func DiskLimit(role string, m v1alpha1.Machine) int64 {
	bytes := DiskBytes(role, m)
	return bytes + bytes/20 + 1<<30
}
