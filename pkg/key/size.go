package key

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const mega = 1000 * 1000

// GuestMemory is the guest's memory in MiB, rounded down. Pod and guest read the same Kubernetes quantity: the original
// handed the text to QEMU, whose G is 2³⁰ while Kubernetes' is 10⁹, and big guests were killed for want of memory.
func GuestMemory(memory resource.Quantity) int64 { return memory.Value() / (1024 * 1024) }

// PodMemory is the memory that a node pod requests: the guest's and an overhead for QEMU, which for masters is 1024M +
// 512M, for workers 512M + 768M·(2 + ⌊g/12⌋) on top of 1024M for each of the g begun 10⁹ bytes.
func PodMemory(role string, memory resource.Quantity) resource.Quantity {
	if role == RoleMaster {
		return *resource.NewQuantity(memory.Value()+(1024+512)*mega, resource.DecimalSI)
	}
	g := (memory.Value() + 1e9 - 1) / 1e9
	return *resource.NewQuantity((g*1024+512+768*(2+g/12))*mega, resource.DecimalSI)
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
