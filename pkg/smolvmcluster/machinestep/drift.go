package machinestep

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
)

// drift returns what differs between the spec and what the machine was created with, a sentence for each field. What the
// runtime does not report is compared by a hash, if it reports one: then the sentence names the fields that it can be.
func (s Seen) drift() []string {
	m, spec := s.Machine, &s.VM.Spec
	var all []string
	number := func(field string, has, wants int64) {
		if has > 0 && wants > 0 && has != wants {
			all = append(all, fmt.Sprintf("%s is immutable after creation; runtime has %d and spec requests %d", field, has, wants))
		}
	}
	text := func(field, has, wants string) {
		if (m.Image != "" || m.From != "") && has != wants {
			all = append(all, fmt.Sprintf("%s is immutable after creation; runtime has %q and spec requests %q", field, has, wants))
		}
	}
	number("cpus", int64(m.CPUs), int64(spec.Resources.CPUs))
	number("memoryMiB", m.MemoryMB, int64(spec.Resources.MemoryMiB))
	if !sameElements(m.Ports, machinespec.Ports(spec.Network.Ports), comparePorts) {
		all = append(all, "network port mappings are immutable after creation")
	}
	text("image", m.Image, spec.Image)
	text("from", m.From, spec.From)
	if m.Network != spec.Network.Enabled {
		all = append(all, fmt.Sprintf("network.enabled is immutable after creation; runtime has %t and spec requests %t", m.Network, spec.Network.Enabled))
	}
	if !s.sameNetworks() {
		all = append(all, "network.allowedCIDRs are immutable after creation")
	}
	if len(all) == 0 && s.hashed() && m.SpecHash != s.SpecHash {
		all = append(all, fmt.Sprintf("the machine was created with another spec, and of it %s are immutable after creation", join(s.unreported())))
	}
	return all
}

// hashed returns whether there are digests to compare. One that is the runtime's own, since another client made the machine,
// says nothing.
func (s Seen) hashed() bool { return s.SpecHash != "" && machinespec.IsHash(s.Machine.SpecHash) }

// sameNetworks compares what the machine may reach. Without a list it may reach all.
func (s Seen) sameNetworks() bool {
	wants, has := s.VM.Spec.Network.AllowedCIDRs, s.Machine.AllowedCIDRs
	if len(wants) == 0 || has == nil {
		return len(wants) == 0 && has == nil
	}
	return sameElements(machinespec.Networks(*has), machinespec.Networks(wants), strings.Compare)
}

// unreported are the fields that cannot be compared by what the runtime reports.
func (s Seen) unreported() []string {
	fields := []string{"command", "args", "env", "workingDir"}
	if s.VM.Spec.Resources.CPUs == 0 {
		fields = append(fields, "cpus")
	}
	if s.VM.Spec.Resources.MemoryMiB == 0 {
		fields = append(fields, "memoryMiB")
	}
	if s.Machine.Image == "" && s.Machine.From == "" {
		fields = append(fields, "image", "from")
	}
	return fields
}

func join(fields []string) string {
	last := len(fields) - 1
	return strings.Join(fields[:last], ", ") + " and " + fields[last]
}

// reconciled says that the machine is as specified, and with a runtime that reports no hash, what of it is not known.
func (s Seen) reconciled() string {
	const all = "desired state matches smolvm runtime state"
	spec := &s.VM.Spec
	if s.hashed() || len(spec.Command)+len(spec.Args)+len(spec.Env) == 0 && spec.WorkingDir == "" {
		return all
	}
	return all + ", as far as the runtime reports it: " + join(s.unreported()) + " cannot be compared"
}

// sizes returns what is wrong with the sizes of the disks, and whether one is to grow. What the spec leaves out, or the
// runtime does not report, is not compared.
func (s Seen) sizes() (wrong string, growth bool) {
	var shrinks []string
	for _, disk := range []struct {
		name       string
		has, wants int64
	}{
		{"storageGiB", s.Machine.StorageGB, s.VM.Spec.Storage.StorageGiB},
		{"overlayGiB", s.Machine.OverlayGB, s.VM.Spec.Storage.OverlayGiB},
	} {
		switch {
		case disk.has <= 0 || disk.wants <= 0:
		case disk.wants < disk.has:
			shrinks = append(shrinks, fmt.Sprintf("%s cannot shrink from %d to %d", disk.name, disk.has, disk.wants))
		case disk.wants > disk.has:
			growth = true
		}
	}
	return strings.Join(shrinks, "; "), growth
}

// resize is the request for the sizes of the spec.
func (s Seen) resize() api.ResizeRequest {
	var r api.ResizeRequest
	if size := s.VM.Spec.Storage.StorageGiB; size > 0 {
		r.StorageGB = &size
	}
	if size := s.VM.Spec.Storage.OverlayGiB; size > 0 {
		r.OverlayGB = &size
	}
	return r
}

func comparePorts(a, b api.Port) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Guest, b.Guest))
}

// sameElements compares lists without their order.
func sameElements[T comparable](a, b []T, compare func(a, b T) int) bool {
	return slices.Equal(slices.SortedFunc(slices.Values(a), compare), slices.SortedFunc(slices.Values(b), compare))
}
