package vitistack

import (
	"encoding/json"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// Words of spec.bootOrder. There is no CD-ROM drive, so the third word, cdrom, takes no place in the order.
const (
	bootDisk    = "disk"
	bootNetwork = "network"
)

// boot numbers the devices that the firmware tries, from 1 without gaps. A word without a device is passed over.
func (p *plan) boot() {
	next := uint(1)
	for _, word := range p.bootOrder() {
		switch word {
		case bootDisk:
			next = p.bootFromDisk(next)
		case bootNetwork:
			if len(p.wanted.Interfaces) > 0 && p.wanted.Interfaces[0].BootOrder == 0 {
				p.wanted.Interfaces[0].BootOrder = next
				next++
			}
		}
	}
}

// bootFromDisk numbers the root disk and returns the next number.
func (p *plan) bootFromDisk(number uint) uint {
	for i := range p.wanted.Disks {
		if d := &p.wanted.Disks[i]; d.Root && d.BootOrder == 0 {
			d.BootOrder = number
			return number + 1
		}
	}
	return number
}

// bootOrder returns the order of the spec. Machines in fields of vitistack/common boot from the network where the disk has
// nothing, unless they name an image.
func (p *plan) bootOrder() []string {
	switch {
	case len(p.Machine.Spec.BootOrder) > 0:
		return p.Machine.Spec.BootOrder
	case p.classic && !namesImage(&p.Machine.Spec):
		return []string{bootDisk, bootNetwork}
	}
	return []string{bootDisk}
}

// namesImage returns whether os.imageID is set. The user writes os, which has no schema.
func namesImage(spec *v1alpha1.MachineSpec) bool {
	var os struct {
		ImageID any `json:"imageID"`
	}
	if spec.OS == nil || json.Unmarshal(spec.OS.Raw, &os) != nil {
		return false
	}
	return os.ImageID != nil && os.ImageID != ""
}
