package vitistack

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// Buses of disks. busSATA is the only one whose disks cannot be read-only.
const (
	busVirtio = "virtio"
	busSATA   = "sata"
	busSCSI   = "scsi"
)

// disks decides on the disks: those of the base, changed by the disks of the spec that have their names, and then the
// other disks of the spec.
func (p *plan) disks(b base) {
	own := p.ownDisks()
	merged := merge(b.Disks, own)
	boot := p.bootDisk(merged)
	for i := range merged {
		p.wanted.Disks = append(p.wanted.Disks, p.disk(&merged[i], i == boot, b.unknown))
	}
}

// ownDisks returns the disks of the spec, each name once. The API server sets the name where it is left out.
func (p *plan) ownDisks() []v1alpha1.Disk {
	var own []v1alpha1.Disk
	seen := map[string]bool{}
	for _, d := range p.Machine.Spec.Disks {
		if d.Name == "" {
			d.Name = root
		}
		if seen[d.Name] {
			p.report(v1alpha1.InvalidSpec, "spec.disks has two disks called %s; rename one", d.Name)
			continue
		}
		seen[d.Name] = true
		own = append(own, d)
	}
	return own
}

// merge lays disks over those of the base.
func merge(base, own []v1alpha1.Disk) []v1alpha1.Disk {
	merged := slices.Clone(base)
	// A disk of the spec to boot from is meant instead of one of the base.
	if slices.ContainsFunc(own, func(d v1alpha1.Disk) bool { return d.Boot }) {
		for i := range merged {
			merged[i].Boot = false
		}
	}
	for i := range own {
		at := slices.IndexFunc(merged, func(d v1alpha1.Disk) bool { return d.Name == own[i].Name })
		if at < 0 {
			merged = append(merged, own[i])
			continue
		}
		overlay(&merged[at], &own[i])
	}
	return merged
}

// overlay sets what is set in own.
func overlay(disk, own *v1alpha1.Disk) {
	for _, field := range []struct{ to, from *string }{
		{&disk.StorageClass, &own.StorageClass}, {&disk.AccessMode, &own.AccessMode}, {&disk.VolumeMode, &own.VolumeMode}, {&disk.Type, &own.Type},
	} {
		if *field.from != "" {
			*field.to = *field.from
		}
	}
	if own.Size != "" || own.SizeGB > 0 {
		disk.Size, disk.SizeGB = own.Size, own.SizeGB
	}
	if own.Source != nil {
		disk.Source = own.Source
	}
	disk.Boot = disk.Boot || own.Boot
}

// bootDisk returns the index of the disk that the guest boots from: the one with boot: true, else the one called root,
// else the first. It is -1 without disks.
func (p *plan) bootDisk(disks []v1alpha1.Disk) int {
	var marked []string
	at := -1
	for i := range disks {
		if disks[i].Boot {
			marked = append(marked, disks[i].Name)
			if at < 0 {
				at = i
			}
		}
	}
	if len(marked) > 1 {
		p.report(v1alpha1.InvalidSpec, "disks %s have boot: true; a Machine boots from one", strings.Join(marked, " and "))
	}
	if at >= 0 {
		return at
	}
	if named := slices.IndexFunc(disks, func(d v1alpha1.Disk) bool { return d.Name == root }); named >= 0 {
		return named
	}
	return min(len(disks), 1) - 1
}

// disk decides on one disk. boots says that the guest boots from it, and sized that a missing size is that of a template
// which does not exist.
func (p *plan) disk(d *v1alpha1.Disk, boots, sized bool) Disk {
	wanted := Disk{Name: d.Name, Bus: busVirtio, Source: d.Source, Root: boots}
	if d.Type == busSATA || d.Type == busSCSI {
		wanted.Bus = d.Type
	}
	if d.Source != nil && d.Source.ContainerDisk != nil {
		return wanted // it has no claim
	}
	wanted.AccessMode, wanted.VolumeMode = corev1.ReadWriteOnce, corev1.PersistentVolumeMode(d.VolumeMode)
	if d.AccessMode != "" {
		wanted.AccessMode = corev1.PersistentVolumeAccessMode(d.AccessMode)
	}
	if p.classic {
		wanted.VolumeMode = corev1.PersistentVolumeMode(p.Settings.VolumeMode)
		if p.Settings.AccessMode != "" {
			wanted.AccessMode = corev1.PersistentVolumeAccessMode(p.Settings.AccessMode)
		}
	}
	if wanted.AccessMode == corev1.ReadOnlyMany && wanted.Bus == busSATA {
		p.report(v1alpha1.InvalidSpec, "disk %s is ReadOnlyMany, and disks on the bus sata cannot be read-only; remove its type", d.Name)
	}
	wanted.Size = p.diskSize(d, sized)
	wanted.Claim = p.claim(d.Name, boots)
	wanted.StorageClass = p.storageClass(d, wanted.Claim)
	p.otherData(&wanted)
	return wanted
}

func (p *plan) diskSize(d *v1alpha1.Disk, sized bool) resource.Quantity {
	const gibibyte = 1 << 30
	switch {
	case d.Size != "":
		return p.quantity(d.Size, "the size of disk "+d.Name)
	case d.SizeGB > 0 && d.SizeGB <= 65536:
		return *resource.NewQuantity(d.SizeGB*gibibyte, resource.BinarySI)
	case !sized || d.SizeGB != 0:
		p.report(v1alpha1.InvalidSpec, "disk %s has no size; set its size, for example 40Gi", d.Name)
	}
	return resource.Quantity{}
}

// claim returns the claim of a disk. A VirtualMachine of the Machine keeps the claim that it has for a disk of this name:
// it may come from vitistack's operator, which had other names, and a disk that holds data is never replaced by an empty
// one. So does a boot disk without a VirtualMachine: that operator called its claim as the Machine. A claim of the usual
// name that is not the Machine's is a problem.
func (p *plan) claim(disk string, boots bool) string {
	usual := p.Machine.Name + "-" + disk
	if p.VM != nil && p.VM.Spec.Template != nil && p.owns(p.VM) {
		if name := mounted(p.VM.Spec.Template.Spec.Volumes, disk); name != "" {
			return name
		}
	}
	if former := p.Claims[p.Machine.Name]; boots && former != nil && p.Claims[usual] == nil && p.owns(former) {
		return former.Name
	}
	if claim := p.Claims[usual]; claim != nil && !p.owns(claim) {
		p.report(v1alpha1.NameConflict, "PersistentVolumeClaim %s/%s exists and is not this Machine's, so it is left alone; delete it, or name disk %s otherwise", p.Machine.Namespace, usual, disk)
	}
	return usual
}

// LeftAlone returns whether the claim of a disk is used and not written: a user has put it in the VirtualMachine, KubeVirt
// has restored it from a snapshot, with the VirtualMachine as its controller, or CDI fills it, with a DataVolume as its
// controller.
func (s *State) LeftAlone(d *Disk) bool {
	if live := s.Claims[d.Claim]; live != nil && s.Owns(live) {
		c := metav1.GetControllerOf(live)
		return c != nil && !s.controls(c)
	}
	return d.Claim != s.usual(d)
}

// mounted returns the claim of a volume; empty if there is none. The claim of a DataVolume, which a user may put in place of
// a claim to move a disk to another class, has its name.
func mounted(volumes []kubevirtv1.Volume, name string) string {
	for i := range volumes {
		switch v := &volumes[i]; {
		case v.Name != name:
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName
		case v.DataVolume != nil:
			return v.DataVolume.Name
		}
	}
	return ""
}

// ClaimsOf returns the names of the claims of a Machine's disks. vm is its VirtualMachine, nil for none.
func ClaimsOf(m *v1alpha1.Machine, settings Settings, vm *kubevirtv1.VirtualMachine) []string {
	p := &plan{Observed: Observed{Machine: m, Settings: settings, VM: vm}, classic: classic(&m.Spec)}
	p.disks(p.base())
	var names []string
	for i := range p.wanted.Disks {
		if claim := p.wanted.Disks[i].Claim; claim != "" {
			names = append(names, claim)
		}
	}
	return names
}
