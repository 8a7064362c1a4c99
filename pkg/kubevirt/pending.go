package kubevirt

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kubevirtv1 "kubevirt.io/api/core/v1"
)

// mostPending is how many differences a message has, and mostDifference how many bytes of each, so that all of them and
// the way to approve them fit into one message.
const mostPending, mostDifference = 20, 160

// Pending returns what differs between a VirtualMachine and its guest, each as "what old → new". Where the VirtualMachine says
// nothing, KubeVirt has decided for the guest, and that is no difference.
func Pending(vm *kubevirtv1.VirtualMachine, guest *kubevirtv1.VirtualMachineInstance) []string {
	if vm.Spec.Template == nil {
		return nil
	}
	wanted, has := &vm.Spec.Template.Spec, &guest.Spec
	d := differences{}
	d.hardware(&wanted.Domain, &has.Domain)
	d.named("disk", diskTexts(wanted), diskTexts(has))
	d.named("interface", interfaceTexts(wanted), interfaceTexts(has))
	if more := len(d) - mostPending; more > 0 {
		d = append(d[:mostPending], fmt.Sprintf("%d more", more))
	}
	return d
}

type differences []string

// add adds a difference, unless the template says nothing.
func (d *differences) add(what, from, to string) {
	if to != "" && to != from {
		d.addAlways(what, from, to)
	}
}

func (d *differences) addAlways(what, from, to string) {
	const none = "none"
	*d = append(*d, beginning(what+" "+cmp.Or(from, none)+" → "+cmp.Or(to, none), mostDifference))
}

func (d *differences) hardware(wanted, has *kubevirtv1.DomainSpec) {
	if wanted.CPU != nil {
		old := has.CPU
		if old == nil {
			old = &kubevirtv1.CPU{}
		}
		d.add("cores", number(old.Cores), number(wanted.CPU.Cores))
		d.add("threads", number(old.Threads), number(wanted.CPU.Threads))
		d.add("sockets", number(old.Sockets), number(wanted.CPU.Sockets))
		d.add("CPU model", old.Model, wanted.CPU.Model)
	}
	d.add("memory", memory(has), memory(wanted))
	if wanted.Machine != nil && has.Machine != nil {
		d.add("machine type", has.Machine.Type, wanted.Machine.Type)
	}
	if from, to := loader(has.Firmware), loader(wanted.Firmware); from != to {
		d.addAlways("boot loader", from, to)
	}
	old, asked := featuresOf(has), featuresOf(wanted)
	d.add("ACPI", old.acpi, asked.acpi)
	d.add("APIC", old.apic, asked.apic)
	if old.hyperV != asked.hyperV {
		d.addAlways("Hyper-V", old.hyperV, asked.hyperV)
	}
}

func number(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func memory(d *kubevirtv1.DomainSpec) string {
	if d.Memory == nil || d.Memory.Guest == nil {
		return ""
	}
	return d.Memory.Guest.String()
}

// loader returns the boot loader of a firmware; BIOS is KubeVirt's.
func loader(f *kubevirtv1.Firmware) string {
	switch {
	case f == nil || f.Bootloader == nil || f.Bootloader.EFI == nil:
		return "BIOS"
	case f.Bootloader.EFI.SecureBoot == nil || *f.Bootloader.EFI.SecureBoot:
		return "EFI with secure boot"
	}
	return "EFI"
}

// told are the features that a Machine can ask for, as on or off; empty where nothing is said.
type told struct{ acpi, apic, hyperV string }

func featuresOf(d *kubevirtv1.DomainSpec) told {
	f := d.Features
	if f == nil {
		return told{}
	}
	t := told{acpi: onOff(&f.ACPI)}
	if f.APIC != nil {
		t.apic = onOff(&f.APIC.FeatureState)
	}
	if f.Hyperv != nil {
		t.hyperV = "on"
	}
	return t
}

func onOff(s *kubevirtv1.FeatureState) string {
	switch {
	case s.Enabled == nil:
		return ""
	case *s.Enabled:
		return "on"
	}
	return "off"
}

// named adds the differences between devices of two machines, by their names: those of the template in its order, then those
// that it does not have.
func (d *differences) named(kind string, wanted, has []device) {
	for _, w := range wanted {
		from := ""
		if i := slices.IndexFunc(has, func(h device) bool { return h.name == w.name }); i >= 0 {
			from = has[i].text
		}
		d.add(kind+" "+w.name, from, w.text)
	}
	for _, h := range has {
		if !slices.ContainsFunc(wanted, func(w device) bool { return h.name == w.name }) {
			d.addAlways(kind+" "+h.name, h.text, "")
		}
	}
}

// device is a device of a machine in words.
type device struct{ name, text string }

func diskTexts(spec *kubevirtv1.VirtualMachineInstanceSpec) []device {
	var all []device
	for i := range spec.Domain.Devices.Disks {
		disk := &spec.Domain.Devices.Disks[i]
		words := []string{"without a volume"}
		for j := range spec.Volumes {
			if v := &spec.Volumes[j]; v.Name == disk.Name {
				words = []string{content(v)}
			}
		}
		if disk.Disk != nil && disk.Disk.Bus != "" {
			words = append(words, "on "+string(disk.Disk.Bus))
		}
		if disk.Disk != nil && disk.Disk.ReadOnly {
			words = append(words, "read-only")
		}
		all = append(all, device{disk.Name, phrase(words, disk.BootOrder)})
	}
	return all
}

// content returns what a volume is.
func content(v *kubevirtv1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return "claim " + v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return "claim " + v.DataVolume.Name
	case v.ContainerDisk != nil:
		return "image " + v.ContainerDisk.Image
	case v.CloudInitNoCloud != nil:
		return "cloud-init"
	case v.CloudInitConfigDrive != nil:
		return "cloud-init on a config drive"
	}
	return "another volume"
}

func interfaceTexts(spec *kubevirtv1.VirtualMachineInstanceSpec) []device {
	var all []device
	for i := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[i]
		words := []string{"on the network of pods"}
		for _, n := range spec.Networks {
			if n.Name == nic.Name && n.Multus != nil {
				words = []string{"on " + n.Multus.NetworkName}
			}
		}
		words = append(words, cmp.Or(nic.Model, kubevirtv1.VirtIO))
		if nic.MacAddress != "" {
			words = append(words, nic.MacAddress)
		}
		all = append(all, device{nic.Name, phrase(words, nic.BootOrder)})
	}
	return all
}

func phrase(words []string, order *uint) string {
	if order != nil {
		words = append(words, fmt.Sprintf("boot order %d", *order))
	}
	return strings.Join(words, " ")
}
