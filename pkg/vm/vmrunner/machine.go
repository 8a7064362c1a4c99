package vmrunner

import (
	"fmt"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// machine returns the machine that the settings describe, with what has been prepared, and without the keeper's part.
// Its disks are in the order of the declaration, and the one for cloud-init is the last. Its CD drives are empty.
func machine(s Settings, live vmconfig.Live, p prepared) qemu.Machine {
	v := s.Machine
	m := qemu.Machine{
		UUID: v.UUID, Type: v.Type, Accelerator: p.choice.Accelerator, CPU: cpu(v, live), Memory: qemu.MiB(v.MaximumRAM),
		Firmware: p.firmware, Clock: qemu.Clock{Base: v.RTCBase, Clock: v.RTCClock}, BootMenu: v.BootMenu, Display: s.screen(), TPMDescriptor: p.tpmDescriptor, ExtraArgs: v.ExtraArgs,
	}
	// The settings were checked.
	m.Networks, _ = networks(v, p.cards)
	for _, d := range v.Drives {
		if d.Type == vmconfig.DriveCD {
			m.CDs = append(m.CDs, qemu.CD{ID: driveID(len(m.CDs)), BootIndex: bootPlace(d)})
			continue
		}
		m.Disks = append(m.Disks, qemu.Disk{
			Serial: disk.Serial(d.Name), Path: s.device(d), Descriptor: p.disks[d.Name].descriptor, Format: qemu.Raw,
			BlockDevice: p.disks[d.Name].device, BootIndex: bootPlace(d),
		})
	}
	if v.CloudInit {
		m.Disks = append(m.Disks, qemu.Disk{
			Serial: cloudInitSerial, Path: cloudInitSerial, Descriptor: p.cloudInitDescriptor, Format: qemu.Raw, ReadOnly: true,
		})
	}
	return m
}

// driveID returns the id of a CD drive in QEMU, by its place among them.
func driveID(drive int) string { return fmt.Sprintf("cd%d", drive) }

func cpu(m vmconfig.Machine, live vmconfig.Live) qemu.CPU {
	t := m.Topology
	return qemu.CPU{
		Model: m.CPUModel, Count: live.CurrentCPUs, Max: m.MaximumCPUs, Removable: true,
		Topology: qemu.Topology{Sockets: t.Sockets, Dies: t.Dies, Cores: t.Cores, Threads: t.Threads},
	}
}

// bootPlace returns the place of a drive in the boot order, from 1; 0 if it has none.
func bootPlace(d vmconfig.Drive) int {
	if d.BootIndex == nil {
		return 0
	}
	return *d.BootIndex + 1
}
