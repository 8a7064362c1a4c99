package vmrunner

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

func TestMachineIsAsDeclared(t *testing.T) {
	s := Settings{Devices: "/dev", Machine: vmconfig.Machine{
		Name: "test-vm", UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Type: "pc-q35-7.2", Firmware: vmconfig.FirmwareUEFI, BootMenu: true,
		CPUModel: "host,pmu=off", MaximumCPUs: 8, Topology: vmconfig.Topology{Sockets: 2, Threads: 2}, MaximumRAM: 8 << 30,
		RTCBase: "localtime", RTCClock: "vm", CloudInit: true, ExtraArgs: []string{"-device", "virtio-keyboard-pci"},
		Networks: []vmconfig.Network{
			{Type: vmconfig.NetworkUser, Device: "e1000e", Net: "10.9.0.0/24"}, {Type: vmconfig.NetworkUser, MAC: "52:54:00:12:34:56"},
		},
		Drives: []vmconfig.Drive{
			{Type: vmconfig.DriveRaw, Name: "system-disk", BootIndex: new(1)}, {Type: vmconfig.DriveCD, BootIndex: new(0)},
			{Type: vmconfig.DriveRaw, Name: "a-disk-with-a-long-name"}, {Type: vmconfig.DriveCD},
		},
		Display: &vmconfig.Display{Outputs: 1},
	}}
	p := prepared{
		choice: qemu.Choice{Accelerator: qemu.KVM}, firmware: &qemu.Firmware{Code: "/code", Vars: "/vars", VarsDescriptor: 9},
		disks:               map[string]opened{"system-disk": {4, true, 1 << 20}, "a-disk-with-a-long-name": {5, false, 1 << 20}},
		cloudInitDescriptor: 8,
	}
	live := vmconfig.Live{CurrentCPUs: 3, CurrentRAM: 4 << 30}
	want := qemu.Machine{
		UUID: s.Machine.UUID, Type: "pc-q35-7.2", Accelerator: qemu.KVM, Memory: 8192, Firmware: p.firmware, BootMenu: true,
		CPU:   qemu.CPU{Model: "host,pmu=off", Count: 3, Max: 8, Removable: true, Topology: qemu.Topology{Sockets: 2, Threads: 2}},
		Clock: qemu.Clock{Base: "localtime", Clock: "vm"}, ExtraArgs: s.Machine.ExtraArgs,
		Networks: []qemu.Network{
			{Model: "e1000e", MAC: macOf(s.Machine, 0), User: &qemu.UserNetwork{Subnet: netip.MustParsePrefix("10.9.0.0/24")}},
			{MAC: "52:54:00:12:34:56", User: &qemu.UserNetwork{}},
		},
		Disks: []qemu.Disk{
			{Serial: "system-disk", Path: "/dev/system-disk", Descriptor: 4, Format: qemu.Raw, BlockDevice: true, BootIndex: 2},
			{Serial: "a-disk-wi-d09ad85cce", Path: "/dev/a-disk-with-a-long-name", Descriptor: 5, Format: qemu.Raw},
			{Serial: "CIDATA", Path: "CIDATA", Descriptor: 8, Format: qemu.Raw, ReadOnly: true},
		},
		CDs: []qemu.CD{{ID: "cd0", BootIndex: 1}, {ID: "cd1"}},
	}
	got := machine(s, live, p)
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("the machine differs (-want +got):\n%s", diff)
	}
	got.Name = "test-vm"
	if _, err := got.Args(); err != nil {
		t.Error(err)
	}
}

func TestInterfacesHaveAddressesThatStay(t *testing.T) {
	seen := map[string]string{}
	for what, address := range map[string]string{
		"the first of a machine":  macOf(vmconfig.Machine{Name: "a", UUID: "1"}, 0),
		"the second of a machine": macOf(vmconfig.Machine{Name: "a", UUID: "1"}, 1),
		"another machine's":       macOf(vmconfig.Machine{Name: "a", UUID: "2"}, 0),
		"one without a UUID":      macOf(vmconfig.Machine{Name: "a"}, 0),
	} {
		if other, ok := seen[address]; ok {
			t.Errorf("%s has the address of %s", what, other)
		}
		seen[address] = what
	}
	if got := macOf(vmconfig.Machine{Name: "a", UUID: "1"}, 0); got != "02:18:d6:e1:ca:c2" {
		t.Errorf("an address has changed to %s", got)
	}
}

func TestGuestHasNoMoreThanTheMachine(t *testing.T) {
	m := vmconfig.Machine{MaximumCPUs: 4, MaximumRAM: 8 << 30, Drives: []vmconfig.Drive{{Type: vmconfig.DriveCD}}}
	for name, test := range map[string]struct {
		live, want vmconfig.Live
		changes    int
	}{
		"less": {
			vmconfig.Live{CurrentCPUs: 1, CurrentRAM: 1 << 30, Media: []string{"a"}, GuestShutdownStops: true},
			vmconfig.Live{CurrentCPUs: 1, CurrentRAM: 1 << 30, Media: []string{"a"}, GuestShutdownStops: true}, 0,
		},
		"as much": {
			vmconfig.Live{CurrentCPUs: 4, CurrentRAM: 8 << 30, Media: []string{""}}, vmconfig.Live{CurrentCPUs: 4, CurrentRAM: 8 << 30, Media: []string{""}}, 0,
		},
		"more, and another number of drives": {
			vmconfig.Live{CurrentCPUs: 5, CurrentRAM: 9 << 30, Media: []string{"a", "b"}}, vmconfig.Live{CurrentCPUs: 4, CurrentRAM: 8 << 30, Media: []string{""}}, 3,
		},
		"no memory": {vmconfig.Live{CurrentCPUs: 4, Media: []string{""}}, vmconfig.Live{CurrentCPUs: 4, CurrentRAM: 8 << 30, Media: []string{""}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, changes := fit(test.live, m)
			if diff := cmp.Diff(test.want, got); diff != "" || len(changes) != test.changes {
				t.Errorf("changes %q (-want +got):\n%s", changes, diff)
			}
		})
	}
}
