package qemu

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMachineThatBreaksARuleIsRefused(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	mac := func(m *Machine, change func(*Network)) {
		n := Network{MAC: "52:54:00:12:34:56", User: &UserNetwork{}}
		change(&n)
		m.Networks = append(m.Networks, n)
	}
	for name, test := range map[string]struct {
		change func(*Machine)
		want   []string
	}{
		"no name":             {func(m *Machine) { m.Name = "" }, []string{"Name: it is empty"}},
		"no accelerator":      {func(m *Machine) { m.Accelerator = "" }, []string{`Accelerator: "" is neither kvm nor tcg`}},
		"no memory":           {func(m *Machine) { m.Memory = 0 }, []string{"Memory: 0 MiB: a machine has 1 MiB or more"}},
		"UUID of other form":  {func(m *Machine) { m.UUID = "abc" }, []string{`UUID: "abc" is not a UUID`}},
		"type of other board": {func(m *Machine) { m.Type = "pc" }, []string{`Type: "pc" is none of q35, pc-q35-<version> and microvm`}},
		"type with options":   {func(m *Machine) { m.Type = "q35,smm=on" }, []string{`Type: "q35,smm=on" is none of q35, pc-q35-<version> and microvm`}},
		"two rules at once": {func(m *Machine) { m.Name, m.Memory = "", -1 }, []string{
			"Name: it is empty", "Memory: -1 MiB: a machine has 1 MiB or more",
		}},

		"no CPU":                  {func(m *Machine) { m.CPU.Count = 0 }, []string{"CPU.Count: 0: a machine has 1 CPU or more", "CPU.Topology: 1 sockets × 1 dies × 1 cores × 1 threads are not 0 CPUs"}},
		"model with an injection": {func(m *Machine) { m.CPU.Model = "host -device x" }, []string{`CPU.Model: "host -device x" is not a model with features, such as EPYC,pmu=off`}},
		"room for fewer CPUs than there are": {func(m *Machine) { m.CPU = CPU{Count: 4, Max: 2} }, []string{
			"CPU.Max: 2 is less than the 4 CPUs to start with",
		}},
		"topology of another number": {func(m *Machine) { m.CPU = CPU{Count: 1, Max: 3, Topology: Topology{Sockets: 2}} }, []string{
			"CPU.Topology: 2 sockets × 1 dies × 1 cores × 1 threads are not 3 CPUs",
		}},
		"topology of the first CPUs only": {func(m *Machine) { m.CPU = CPU{Count: 2, Max: 8, Topology: Topology{Cores: 2}} }, []string{
			"CPU.Topology: 1 sockets × 1 dies × 2 cores × 1 threads are not 8 CPUs",
		}},
		"negative topology": {func(m *Machine) { m.CPU = CPU{Count: 4, Topology: Topology{Sockets: -2, Cores: -2}} }, []string{
			"CPU.Topology: a part of it is negative",
		}},

		"kernel without image": {func(m *Machine) { m.Kernel = &Kernel{} }, []string{"Kernel.Image: the path is empty"}},
		"firmware without files": {func(m *Machine) { m.Firmware = &Firmware{} }, []string{
			"Firmware.Code: the path is empty", "Firmware.Vars: the path is empty",
		}},
		"firmware whose code is its variables": {func(m *Machine) { m.Firmware = &Firmware{Code: "/a", Vars: "/a"} }, []string{
			"Firmware.Vars: the file is the code's",
		}},
		"firmware configuration that QEMU keeps for itself": {func(m *Machine) { m.FirmwareConfig = []FirmwareConfig{{Name: "etc/x"}} }, []string{
			`FirmwareConfig[0].Name: "etc/x" is not opt/ and letters, digits, '.', '_', '-' or '/'`, "FirmwareConfig[0].File: the path is empty",
		}},
		"firmware configuration with a long name": {
			func(m *Machine) {
				m.FirmwareConfig = []FirmwareConfig{{Name: "opt/" + strings.Repeat("x", 52), File: "/a"}}
			},
			[]string{fmt.Sprintf("FirmwareConfig[0].Name: %q has more than 55 bytes", "opt/"+strings.Repeat("x", 52))},
		},
		"firmware configuration twice": {
			func(m *Machine) {
				m.FirmwareConfig = []FirmwareConfig{{Name: "opt/a", File: "/a"}, {Name: "opt/a", File: "/b"}}
			},
			[]string{`FirmwareConfig[1].Name: "opt/a" is there twice`},
		},
		"long socket paths": {func(m *Machine) { m.Monitor, m.Agent, m.TPM = long, long, long }, []string{
			fmt.Sprintf("Monitor: %q has more than the 107 bytes of a Unix socket's path", long),
			fmt.Sprintf("Agent: %q has more than the 107 bytes of a Unix socket's path", long),
			fmt.Sprintf("TPM: %q has more than the 107 bytes of a Unix socket's path", long),
		}},
		"port with an injection": {func(m *Machine) { m.AgentPort = "a,b" }, []string{
			`AgentPort: "a,b" is not 1 to 64 letters, digits, '.', '_' or '-'`,
		}},

		"disk without anything": {func(m *Machine) { m.Disks = []Disk{{}} }, []string{
			`Disks[0].Serial: "" is not letters, digits, '.', '_' or '-'`, "Disks[0].Path: the path is empty",
		}},
		"disks of one serial": {func(m *Machine) { m.Disks = []Disk{{Serial: "a", Path: "/a"}, {Serial: "a", Path: "/b"}} }, []string{
			`Disks[1].Serial: "a" is there twice`,
		}},
		"serial of 21 bytes": {func(m *Machine) { m.Disks = []Disk{{Serial: "123456789012345678901", Path: "/a"}} }, []string{
			`Disks[0].Serial: "123456789012345678901" has more than 20 bytes`,
		}},
		"format that is not known": {func(m *Machine) { m.Disks = []Disk{{Serial: "a", Path: "/a", Format: "vmdk"}} }, []string{
			`Disks[0].Format: "vmdk" is neither raw nor qcow2`,
		}},
		"one place in the boot order for two": {
			func(m *Machine) {
				m.Disks, m.CDs = []Disk{{Serial: "a", Path: "/a", BootIndex: 1}}, []CD{{ID: "cd0", BootIndex: 1}}
			},
			[]string{"CDs[0].BootIndex: 1 is the place of Disks[0].BootIndex"},
		},
		"negative place in the boot order": {func(m *Machine) { m.CDs = []CD{{ID: "cd0", BootIndex: -1}} }, []string{
			"CDs[0].BootIndex: -1: places count from 1",
		}},
		"seven CDs": {
			func(m *Machine) {
				for i := range 7 {
					m.CDs = append(m.CDs, CD{ID: fmt.Sprintf("cd%d", i)})
				}
			},
			[]string{"CDs: 7: a machine has 6 at most"},
		},
		"CD with a relative path and a number for a name": {func(m *Machine) { m.CDs = []CD{{ID: "0", Path: "ssh:a"}, {ID: "0"}} }, []string{
			`CDs[0].ID: "0" is not a letter and up to 19 letters, digits, '.', '_' or '-'`,
			`CDs[0].Path: "ssh:a" is neither an absolute path nor a URL of http or https`,
			`CDs[1].ID: "0" is not a letter and up to 19 letters, digits, '.', '_' or '-'`,
			`CDs[1].ID: "0" is there twice`,
		}},

		"CDs that QEMU would get from elsewhere": {
			func(m *Machine) {
				for i, medium := range []string{"nbd://host/disk", "ssh://host/disk", "file:///etc/shadow", `json:{"driver":"file"}`, "http:///disk", "HTTP://host/disk"} {
					m.CDs = append(m.CDs, CD{ID: fmt.Sprintf("cd%d", i), Path: medium})
				}
			},
			[]string{
				`CDs[0].Path: "nbd://host/disk" is neither an absolute path nor a URL of http or https`,
				`CDs[1].Path: "ssh://host/disk" is neither an absolute path nor a URL of http or https`,
				`CDs[2].Path: "file:///etc/shadow" is neither an absolute path nor a URL of http or https`,
				`CDs[3].Path: "json:{\"driver\":\"file\"}" is neither an absolute path nor a URL of http or https`,
				`CDs[4].Path: "http:///disk" is neither an absolute path nor a URL of http or https`,
				`CDs[5].Path: "HTTP://host/disk" is neither an absolute path nor a URL of http or https`,
			},
		},
		"CD from a URL by descriptor": {func(m *Machine) { m.CDs = []CD{{ID: "cd0", Path: "http://host/disk", Descriptor: 3}} }, []string{
			"CDs[0].Descriptor: it is 3 or more, and takes a path",
		}},
		"firmware by standard error": {func(m *Machine) { m.Firmware = &Firmware{Code: "/a", Vars: "/b", VarsDescriptor: 2} }, []string{
			"Firmware.VarsDescriptor: 2 is less than 3",
		}},
		"clock with an injection": {func(m *Machine) { m.Clock = Clock{Base: "utc,clock=vm", Clock: "rt\n-device x"} }, []string{
			`Clock.Base: "utc,clock=vm" is none of utc, localtime and a date such as 2006-06-17T16:01:21`,
			`Clock.Clock: "rt\n-device x" is none of host, rt and vm`,
		}},
		"clock with a date that is none": {func(m *Machine) { m.Clock.Base = "2006-02-30" }, []string{
			`Clock.Base: "2006-02-30" is none of utc, localtime and a date such as 2006-06-17T16:01:21`,
		}},

		"network of another model": {func(m *Machine) { mac(m, func(n *Network) { n.Model = "virtio-net,romfile=/etc/shadow" }) }, []string{
			`Networks[0].Model: "virtio-net,romfile=/etc/shadow" is none of virtio-net, e1000e, e1000, rtl8139`,
		}},
		"what only virtio has": {
			func(m *Machine) {
				mac(m, func(n *Network) {
					n.User, n.Tap, n.Model, n.Queues, n.VHost, n.MTU = nil, "tap0", ModelE1000, 2, true, 1450
				})
			},
			[]string{"Networks[0].MTU: only virtio-net announces it", "Networks[0].Queues: only virtio-net has several", "Networks[0].VHost: only virtio-net has it"},
		},
		"network without address": {func(m *Machine) { mac(m, func(n *Network) { n.MAC = "" }) }, []string{
			`Networks[0].MAC: "" is not a unicast address such as 52:54:00:12:34:56`,
		}},
		"network with a multicast address": {func(m *Machine) { mac(m, func(n *Network) { n.MAC = "53:54:00:12:34:56" }) }, []string{
			`Networks[0].MAC: "53:54:00:12:34:56" is not a unicast address such as 52:54:00:12:34:56`,
		}},
		"networks of one address": {
			func(m *Machine) {
				mac(m, func(n *Network) { n.MAC = "0a:58:0a:01:02:03" })
				mac(m, func(n *Network) { n.MAC = "0A:58:0A:01:02:03" })
			},
			[]string{`Networks[1].MAC: "0A:58:0A:01:02:03" is there twice`},
		},
		"network that leads nowhere": {func(m *Machine) { mac(m, func(n *Network) { n.User = nil }) }, []string{"Networks[0]: it has one of Tap, SocketDescriptor and User"}},
		"network that leads to two":  {func(m *Machine) { mac(m, func(n *Network) { n.Tap = "tap0" }) }, []string{"Networks[0]: it has one of Tap, SocketDescriptor and User"}},
		"long name of a tap":         {func(m *Machine) { mac(m, func(n *Network) { n.User, n.Tap = nil, "tap-1234567890-x" }) }, []string{`Networks[0].Tap: "tap-1234567890-x" is not the name of an interface`}},
		"MTU below IPv4's":           {func(m *Machine) { mac(m, func(n *Network) { n.MTU = 67 }) }, []string{"Networks[0].MTU: 67 is not between 68 and 65535"}},
		"network by standard error":  {func(m *Machine) { mac(m, func(n *Network) { n.User, n.SocketDescriptor = nil, 2 }) }, []string{"Networks[0].SocketDescriptor: 2 is less than 3"}},
		"queues of the user network": {func(m *Machine) { mac(m, func(n *Network) { n.Queues, n.VHost = 2, true }) }, []string{"Networks[0].Queues: only a tap interface has several", "Networks[0].VHost: only a tap interface has it"}},
		"more queues than a tap has": {func(m *Machine) { mac(m, func(n *Network) { n.User, n.Tap, n.Queues = nil, "tap0", 257 }) }, []string{"Networks[0].Queues: 257 is not between 0 and 256"}},
		"user network of IPv6":       {func(m *Machine) { mac(m, func(n *Network) { n.User.Subnet = netip.MustParsePrefix("fd00::/64") }) }, []string{"Networks[0].User.Subnet: fd00::/64 is not an IPv4 network"}},
		"forward of nothing":         {func(m *Machine) { mac(m, func(n *Network) { n.User.Forwards = []Forward{{}} }) }, []string{"Networks[0].User.Forwards[0]: ports 0 and 0 are not both between 1 and 65535"}},
		"forward of another protocol": {
			func(m *Machine) {
				mac(m, func(n *Network) {
					n.User.Forwards = []Forward{{Protocol: "sctp", Address: netip.IPv6Loopback(), HostPort: 1, GuestPort: 65535}}
				})
			},
			[]string{`Networks[0].User.Forwards[0].Protocol: "sctp" is neither tcp nor udp`, "Networks[0].User.Forwards[0].Address: ::1 is not an IPv4 address"},
		},

		"tag of 32 bytes": {func(m *Machine) { m.Shares = []Share{{Tag: strings.Repeat("x", 32), Path: "/a"}} }, []string{
			`Shares[0].Tag: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is not 1 to 31 bytes`,
		}},
		"shares of one tag":   {func(m *Machine) { m.Shares = []Share{{Tag: "a", Path: "/a"}, {Tag: "a", Path: "/b"}} }, []string{`Shares[1].Tag: "a" is there twice`}},
		"share of nothing":    {func(m *Machine) { m.Shares = []Share{{Tag: "a"}} }, []string{"Shares[0]: it has either Path or Socket"}},
		"share of two":        {func(m *Machine) { m.Shares = []Share{{Tag: "a", Path: "/a", Socket: "/b"}} }, []string{"Shares[0]: it has either Path or Socket"}},
		"read-only virtiofs":  {func(m *Machine) { m.Shares = []Share{{Tag: "a", Socket: "/b", ReadOnly: true}} }, []string{"Shares[0].ReadOnly: what a virtiofsd serves is made read-only by virtiofsd"}},
		"display of no kind":  {func(m *Machine) { m.Display = &Display{} }, []string{"Display: it has VNC, SPICE or both"}},
		"display of 17 parts": {func(m *Machine) { m.Display = &Display{VNC: "/a", Outputs: 17} }, []string{"Display.Outputs: 17 is not between 0 and 16"}},
		"SPICE out of bounds": {func(m *Machine) { m.Display = &Display{SPICE: &SPICE{StreamingVideo: "on", USBRedirects: 15}} }, []string{
			"Display.SPICE.Port: 0 is not between 1 and 65535", `Display.SPICE.StreamingVideo: "on" is none of off, all and filter`,
			"Display.SPICE.USBRedirects: 15 is not between 0 and 14",
		}},
		"more devices than slots": {func(m *Machine) { m.Disks = disks("", 29) }, []string{
			"Disks, Networks, Shares: with the machine's own they are 31 devices; it has room for 30",
		}},
		"what a microvm has not": {
			func(m *Machine) {
				m.Type, m.CPU, m.Firmware, m.TPM = "microvm", CPU{Count: 1, Max: 4, Topology: Topology{Dies: 2}}, &Firmware{Code: "/a", Vars: "/b"}, "/c"
				m.CDs, m.Display = []CD{{ID: "cd0"}}, &Display{VNC: "/d"}
			},
			[]string{
				"CPU.Max: a microvm cannot plug CPUs", "CPU.Topology: a microvm has no dies", "Kernel: a microvm boots from a kernel alone",
				"Firmware: a microvm has its own", "TPM: a microvm has none", "CDs: a microvm has none", "Display: a microvm has none",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := smallest("")
			test.change(&m)
			args, err := m.Args()
			var found FieldErrors
			if !errors.As(err, &found) || args != nil {
				t.Fatalf("arguments %v, error %v", args, err)
			}
			if diff := cmp.Diff(strings.Join(test.want, "; "), found.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func disks(dir string, count int) []Disk {
	var all []Disk
	for i := range count {
		all = append(all, Disk{Serial: fmt.Sprintf("d%d", i), Path: fmt.Sprintf("%s/disk%d", dir, i)})
	}
	return all
}

func TestCPUModelFollowsTheAccelerator(t *testing.T) {
	for name, test := range map[string]struct {
		model       string
		accelerator Accelerator
		want        string
	}{
		"KVM takes the host's":                        {"", KVM, "host"},
		"software takes all it can":                   {"", TCG, "max"},
		"the host's in software is all it can":        {"host", TCG, "max"},
		"features stay":                               {"host,pmu=off,-x2apic", TCG, "max,pmu=off,x2apic=off"},
		"a plus does not come last":                   {"host,+vmx", KVM, "host,vmx=on"},
		"a model that is named is what it is":         {"EPYC", TCG, "EPYC"},
		"all that KVM can":                            {"max", KVM, "max"},
		"features without a model are of the default": {",pmu=off", KVM, "host,pmu=off"},
	} {
		t.Run(name, func(t *testing.T) {
			m := smallest("")
			m.CPU.Model, m.Accelerator = test.model, test.accelerator
			// Virtualization is exposed only on request.
			for nested, want := range map[bool]string{true: test.want, false: test.want + ",vmx=off,svm=off"} {
				m.CPU.Nested = nested
				if args := mustArgs(t, m); !strings.Contains(strings.Join(args, " ")+" ", " -cpu "+want+" ") {
					t.Errorf("want -cpu %s in %v", want, args)
				}
			}
		})
	}
}

func TestMiBRoundsUp(t *testing.T) {
	for bytes, want := range map[int64]int64{0: 0, 1: 1, 1 << 20: 1, 1<<20 + 1: 2, 1e9: 954, 1 << 30: 1024, 1<<63 - 1: 1 << 43} {
		if got := MiB(bytes); got != want {
			t.Errorf("MiB(%d) = %d, want %d", bytes, got, want)
		}
	}
}
