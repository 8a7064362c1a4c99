package virtualmachine

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Disk is a disk of a virtual machine that is a persistent volume.
type Disk struct {
	// Name is the name of the disk: /dev/<Name> in the container, and the name of the claim template.
	Name string
	// Claim is the name of the claim.
	Claim string
	// Template is the user's.
	Template *v1.VolumeClaimTemplate
}

// disksOf returns the disks of a virtual machine, in the order of their declaration. The number in the name of a disk
// without one counts claim templates, named ones included.
func disksOf(vm *v1.VirtualMachine) []Disk {
	var disks []Disk
	for i := range vm.Spec.VM.Disks {
		template := vm.Spec.VM.Disks[i].VolumeClaimTemplate
		if template == nil {
			continue
		}
		name := fmt.Sprintf("disk-%d", len(disks))
		if given := nameOf(template); given != "" {
			name = given + "-disk"
		}
		disks = append(disks, Disk{Name: name, Claim: claimName(name, vm.Name), Template: template})
	}
	return disks
}

// formerClaim returns the name of the claim of a disk as VM-Operator 3 and 4 have it.
func formerClaim(d Disk, machine string) string { return machine + "-" + d.Name }

func nameOf(template *v1.VolumeClaimTemplate) string {
	if template.Metadata == nil {
		return ""
	}
	return ptr.Deref(template.Metadata.Name, "")
}

// drivesOf returns the drives of a machine, and the media in its CD drives.
func drivesOf(vm *v1.VirtualMachine, disks []Disk) (drives []vmconfig.Drive, media []string) {
	for _, d := range vm.Spec.VM.Disks {
		var place *int
		if d.BootIndex != nil {
			place = new(int(*d.BootIndex))
		}
		if d.CDROM != nil {
			drives = append(drives, vmconfig.Drive{Type: vmconfig.DriveCD, BootIndex: place})
			media = append(media, d.CDROM.Image)
			continue
		}
		drives = append(drives, vmconfig.Drive{Type: vmconfig.DriveRaw, Name: disks[0].Name, BootIndex: place})
		disks = disks[1:]
	}
	return drives, media
}

// ForeignClaims returns the claims of the machine's names that belong to another one, whose disks they are.
func (s *State) ForeignClaims() []string {
	var names []string
	for _, claim := range s.claimNames() {
		if c, ok := s.Claims[claim]; ok && c.Labels[LabelInstance] != s.VM.Name {
			names = append(names, claim)
		}
	}
	return names
}

// FormerClaims returns the claims that VM-Operator 3 and 4 have created, of disks for which the StatefulSet has created
// none. Their machine is not started with empty disks. Nor are they used as they are: a machine whose claim is now one and
// now the other would lose its data, and VM-Operator's pod may have them still.
func (s *State) FormerClaims() []string {
	var names []string
	for _, d := range s.Disks {
		if _, own := s.Claims[d.Claim]; own {
			continue
		}
		former := formerClaim(d, s.VM.Name)
		if c, ok := s.Claims[former]; ok && c.Labels[LabelInstance] == s.VM.Name {
			names = append(names, former)
		}
	}
	return names
}

// Pending returns, for each disk without a bound claim, what it waits for. The pod of a machine that runs has them.
func (s *State) Pending() []string {
	if s.Serves() {
		return nil
	}
	var waits []string
	for _, claim := range s.claimNames() {
		c, ok := s.Claims[claim]
		switch {
		case !ok:
			waits = append(waits, fmt.Sprintf("PersistentVolumeClaim %s does not exist yet; the machine's StatefulSet creates it when the machine is started", claim))
		case c.Status.Phase == corev1.ClaimLost:
			waits = append(waits, fmt.Sprintf("PersistentVolumeClaim %s has lost its volume %s; restore the volume, or delete the claim", claim, c.Spec.VolumeName))
		case c.Status.Phase != corev1.ClaimBound:
			waits = append(waits, fmt.Sprintf("PersistentVolumeClaim %s is not bound: %s", claim, whyUnbound(c)))
		}
	}
	return waits
}

// whyUnbound says what a claim needs, from what is in the claim alone.
func whyUnbound(c *corev1.PersistentVolumeClaim) string {
	switch class := c.Spec.StorageClassName; {
	case class == nil:
		return "it names no StorageClass, and there is no default one, or the volume is not provisioned yet"
	case *class == "":
		return "it needs an existing volume that matches it; create one, or set storageClassName"
	default:
		return fmt.Sprintf("StorageClass %s has not provisioned its volume yet", *class)
	}
}

// Growth is a claim that is to become larger.
type Growth struct {
	Claim *corev1.PersistentVolumeClaim
	To    resource.Quantity
}

// Growths returns the bound claims of disks that are declared larger than their claims. A claim never becomes smaller.
func (s *State) Growths() []Growth {
	var list []Growth
	for _, d := range s.Disks {
		claim, wanted := s.ownClaim(d), declaredSize(d)
		if claim != nil && wanted.Cmp(claim.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
			list = append(list, Growth{Claim: claim, To: wanted})
		}
	}
	return list
}

// Growing returns, for each claim whose request was raised and that is not larger yet, what it waits for.
func (s *State) Growing() []string {
	var waits []string
	for _, d := range s.Disks {
		claim := s.ownClaim(d)
		if claim == nil {
			continue
		}
		wanted, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if wanted.Cmp(has) <= 0 {
			continue
		}
		waits = append(waits, fmt.Sprintf("PersistentVolumeClaim %s is being grown from %s to %s by the provider of its volume%s", claim.Name, has.String(), wanted.String(), saidOf(claim)))
	}
	return waits
}

// saidOf returns what a claim says of its growth.
func saidOf(claim *corev1.PersistentVolumeClaim) string {
	for _, c := range claim.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			return ": " + text.Beginning(c.Message, maxProblem)
		}
	}
	return ""
}

// ownClaim returns the claim of a disk if it is this machine's, and bound.
func (s *State) ownClaim(d Disk) *corev1.PersistentVolumeClaim {
	claim, ok := s.Claims[d.Claim]
	if !ok || claim.Labels[LabelInstance] != s.VM.Name || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return nil
	}
	return claim
}

// declaredSize returns the size that the user declares; zero if there is none.
func declaredSize(d Disk) resource.Quantity {
	if r := d.Template.Spec.Resources; r != nil {
		return v1.List(r.Requests)[corev1.ResourceStorage]
	}
	return resource.Quantity{}
}

// DiskSize returns the size of a disk that the running guest sees, as the runner reports it; empty if it is not known.
func (s *State) DiskSize(d Disk) string {
	if !s.Serves() {
		return ""
	}
	if s.Link.Report == nil {
		// While the operator has no link with the runner, it is what was known before.
		for _, before := range s.VM.Status.Disks {
			if before.Name == d.Name {
				return before.Size
			}
		}
		return ""
	}
	size, ok := s.Link.Report.Disks[d.Name]
	if !ok || size <= 0 {
		return ""
	}
	return resource.NewQuantity(size, resource.BinarySI).String()
}

// ClaimNames returns the names of all claims that a virtual machine may have.
func ClaimNames(vm *v1.VirtualMachine) []string {
	disks := disksOf(vm)
	m, _ := machineOf(vm, disks)
	names := (&State{Observed: Observed{VM: vm}, Disks: disks, Machine: m}).claimNames()
	for _, d := range disks {
		names = append(names, formerClaim(d, vm.Name))
	}
	return names
}

// claimNames returns the names of the claims that the machine has.
func (s *State) claimNames() []string {
	var names []string
	for _, d := range s.Disks {
		names = append(names, d.Claim)
	}
	if s.keepsData() {
		names = append(names, claimName(RunnerData, s.VM.Name))
	}
	return names
}

// keepsData returns whether the machine has something to keep besides its disks.
func (s *State) keepsData() bool {
	return s.Machine.TPM || s.Machine.Firmware != vmconfig.FirmwareBIOS
}
