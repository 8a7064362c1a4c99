package placing

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// What a machine gets if its spec does not say it, in MiB and GiB.
const (
	DefaultCPUs       = 1
	DefaultMemoryMiB  = 512
	DefaultStorageGiB = 20
	DefaultOverlayGiB = 10
)

// Claim is what a SmolVM takes of a node.
type Claim struct {
	// VM and UID say whose it is.
	VM  types.NamespacedName
	UID types.UID
	// Node is the node that it is taken of; empty while there is none.
	Node string
	// CPUs is a number of processors.
	CPUs int64
	// MemoryMiB is in MiB, StorageGiB in GiB; it is the sum of the two disks.
	MemoryMiB, StorageGiB int64
	// Ports are ports of the node.
	Ports []int32
}

// ClaimOf returns what a SmolVM takes of status.nodeName. Where the spec was changed after the machine was created, the
// larger disk and all ports of spec and status count.
func ClaimOf(vm *v1alpha1.SmolVM) Claim {
	spec := &vm.Spec
	c := Claim{
		VM: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}, UID: vm.UID, Node: vm.Status.NodeName,
		CPUs:      orDefault(int64(spec.Resources.CPUs), DefaultCPUs),
		MemoryMiB: orDefault(int64(spec.Resources.MemoryMiB), DefaultMemoryMiB),
		StorageGiB: sum(
			larger(orDefault(spec.Storage.StorageGiB, DefaultStorageGiB), vm.Status.StorageGiB),
			larger(orDefault(spec.Storage.OverlayGiB, DefaultOverlayGiB), vm.Status.OverlayGiB),
		),
	}
	for _, port := range slices.Concat(spec.Network.Ports, vm.Status.Ports) {
		c.Ports = appendNew(c.Ports, port.HostPort)
	}
	return c
}

// Covering returns a Claim that is no smaller than what the machine on the node has: a change of the spec after the
// machine was created takes no effect and frees nothing.
func (c Claim) Covering(cpus, memoryMiB int64, ports ...int32) Claim {
	c.CPUs, c.MemoryMiB, c.Ports = max(c.CPUs, cpus), max(c.MemoryMiB, memoryMiB), slices.Clone(c.Ports)
	for _, port := range ports {
		c.Ports = appendNew(c.Ports, port)
	}
	return c
}

// Having returns the Claim of a SmolVM whose machine is known: what the machine has, since a change of the spec has no
// effect on it. What the runtime does not report, which is 0, does not change.
func (c Claim) Having(cpus, memoryMiB, storageGiB int64, ports ...int32) Claim {
	c.CPUs, c.MemoryMiB, c.StorageGiB = orDefault(cpus, c.CPUs), orDefault(memoryMiB, c.MemoryMiB), orDefault(storageGiB, c.StorageGiB)
	c.Ports = nil
	for _, port := range ports {
		c.Ports = appendNew(c.Ports, port)
	}
	return c
}

// Larger returns the Claim with a sum of the disks in GiB that is not smaller than that.
func (c Claim) Larger(storageGiB int64) Claim {
	c.StorageGiB = max(c.StorageGiB, storageGiB)
	return c
}

// isOf returns whether another Claim is of the same SmolVM. One that was deleted and created again is another.
func (c Claim) isOf(other Claim) bool { return c.VM == other.VM && c.UID == other.UID }

// appendNew leaves out port 0, which is none.
func appendNew(ports []int32, port int32) []int32 {
	if port == 0 || slices.Contains(ports, port) {
		return ports
	}
	return append(ports, port)
}

func orDefault(value, otherwise int64) int64 {
	if value > 0 {
		return value
	}
	return otherwise
}

func larger(value int64, observed *int64) int64 {
	if observed == nil {
		return value
	}
	return max(value, *observed)
}

// sum adds numbers that are not negative. It does not overflow: specs may have any sizes, and a sum that became
// negative would fit everywhere.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// usage is what is taken of a node.
type usage struct {
	cpus, memoryMiB, storageGiB int64
	// ports are by their numbers, with the names of those that have them.
	ports map[int32]string
}

// ledger is what is taken, by nodes.
type ledger map[string]usage

// add adds up what others than own take. Of several Claims of one SmolVM on one node the largest values count.
func add(own Claim, lists ...[]Claim) ledger {
	type place struct {
		vm   types.NamespacedName
		uid  types.UID
		node string
	}
	claims := map[place]Claim{}
	for _, c := range slices.Concat(lists...) {
		if own.isOf(c) {
			continue
		}
		at := place{c.VM, c.UID, c.Node}
		if known, ok := claims[at]; ok {
			c.StorageGiB = max(c.StorageGiB, known.StorageGiB)
			c = c.Covering(known.CPUs, known.MemoryMiB, known.Ports...)
		}
		claims[at] = c
	}
	taken := ledger{}
	for at, c := range claims {
		u := taken[at.node]
		u.cpus, u.memoryMiB, u.storageGiB = sum(u.cpus, c.CPUs), sum(u.memoryMiB, c.MemoryMiB), sum(u.storageGiB, c.StorageGiB)
		if u.ports == nil {
			u.ports = map[int32]string{}
		}
		for _, port := range c.Ports {
			// Of several that have a port, a message names the first.
			if name := c.VM.String(); u.ports[port] == "" || name < u.ports[port] {
				u.ports[port] = name
			}
		}
		taken[at.node] = u
	}
	return taken
}

// reject returns which resource of a node is used up for a Claim; empty if the Claim fits. An allocatable value of 0 is
// unlimited.
func (u usage) reject(c Claim, allocatable v1alpha1.Allocatable) string {
	for _, amount := range []struct {
		name, unit                   string
		requested, used, allocatable int64
	}{
		{"cpu", "", c.CPUs, u.cpus, int64(allocatable.CPUs)},
		{"memory", "MiB", c.MemoryMiB, u.memoryMiB, allocatable.MemoryMiB},
		{"storage", "GiB", c.StorageGiB, u.storageGiB, allocatable.StorageGiB},
	} {
		if amount.allocatable != 0 && sum(amount.requested, amount.used) > amount.allocatable {
			return fmt.Sprintf("insufficient %s: requested %d%s used %d%s allocatable %d%s",
				amount.name, amount.requested, amount.unit, amount.used, amount.unit, amount.allocatable, amount.unit)
		}
	}
	for _, port := range c.Ports {
		if holder, ok := u.ports[port]; ok {
			return fmt.Sprintf("hostPort %d conflicts with %s", port, holder)
		}
	}
	return ""
}
