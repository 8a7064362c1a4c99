package qemu

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden are the machines whose command lines are kept in testdata, with their files in a directory. UPDATE=1 rewrites
// the files. TestQEMUAcceptsEveryGoldenMachine starts them.
var golden = map[string]func(directory string) Machine{
	"smallest":                        smallest,
	"master-in-software":              master,
	"worker":                          worker,
	"paused-and-ending-with-a-reboot": endsWithReboot,
	"hot-pluggable-cpus":              hotPluggable,
	"hot-pluggable-cpus-on-dies":      hotPluggableDies,
	"pinned-cpu-model-and-type":       pinned,
	"microvm":                         micro,
	"microvm-with-virtiofs":           microVirtiofs,
	"virtiofs":                        virtiofs,
	"block-device-and-qcow2":          blockDevice,
	"disks-by-descriptor":             byDescriptor,
	"cds":                             cds,
	"cd-from-url":                     cdFromURL,
	"uefi":                            uefi,
	"secure-boot":                     secureBoot,
	"tpm":                             tpm,
	"user-network":                    userNetwork,
	"network-models":                  networkModels,
	"clock":                           clock,
	"clock-of-a-microvm":              clockOfMicroVM,
	"firmware-and-cd-by-descriptor":   firmwareByDescriptor,
	"many-queues":                     manyQueues,
	"vhost":                           vhost,
	"all-by-descriptor":               allByDescriptor,
	"vhost-by-descriptor":             vhostByDescriptor,
	"other-port-of-an-agent":          otherPort,
	"vnc":                             vnc,
	"spice":                           spice,
	"commas-everywhere":               commas,
	"extra-arguments":                 extraArguments,
}

func smallest(string) Machine {
	return Machine{Name: "smallest", Accelerator: TCG, CPU: CPU{Count: 1}, Memory: 1}
}

func kernel(dir string) *Kernel {
	return &Kernel{Image: dir + "/vmlinuz", Initrd: dir + "/initrd", CommandLine: "console=ttyS0 root=/dev/disk/by-id/virtio-rootfs flatcar.first_boot=1"}
}

func node(name, dir string) Machine {
	return Machine{
		Name: name, UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Accelerator: KVM, CPU: CPU{Count: 4}, Memory: 8192, Kernel: kernel(dir),
		Disks: []Disk{
			{Serial: "rootfs", Path: dir + "/rootfs.img"},
			{Serial: "dockerfs", Path: dir + "/dockerfs.img"},
			{Serial: "kubeletfs", Path: dir + "/kubeletfs.img"},
		},
		Networks:       []Network{{MAC: "0A:58:0A:01:02:03", Tap: "tap-eth0", MTU: 1450}},
		FirmwareConfig: []FirmwareConfig{{Name: "opt/org.flatcar-linux/config", File: dir + "/config.ign"}},
		Monitor:        dir + "/monitor.sock",
		Agent:          dir + "/agent.sock",
	}
}

func worker(dir string) Machine {
	m := node("worker-5tzw2", dir)
	m.Shares = []Share{{Tag: "data", Path: dir + "/data"}, {Tag: "images", Path: dir + "/images", ReadOnly: true}}
	return m
}

func master(dir string) Machine {
	m := node("master-al9qy", dir)
	m.Accelerator = TCG
	m.Shares = []Share{{Tag: "etcdshare", Path: dir + "/etcd"}}
	return m
}

func byDescriptor(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Disks = []Disk{
			{Serial: "rootfs", Path: dir + "/root,fs.img", Descriptor: 3},
			{Serial: "guestos", Path: dir + "/guestos.img", Descriptor: 4, ReadOnly: true},
		}
		m.Shares = []Share{{Tag: "data", Path: dir + "/data", Mapped: true}}
	})
}

// allByDescriptor has no directory for sockets and no privileges for its network.
func allByDescriptor(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Agent, m.MonitorDescriptor, m.AgentDescriptor = dir+"/agent.sock", 3, 4
		m.Networks = []Network{{MAC: "0A:58:0A:01:02:03", Tap: "tap0", TapDescriptor: 5, MTU: 1450}}
	})
}

func otherPort(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Agent, m.AgentPort = dir+"/agent.sock", "dev.smolvm.agent.0" })
}

func vhostByDescriptor(dir string) Machine {
	m := allByDescriptor(dir)
	m.Networks[0].VHost, m.Networks[0].VHostDescriptor = true, 6
	return m
}

func withMonitor(dir string, change func(*Machine)) Machine {
	m := smallest(dir)
	m.Name = "m"
	m.Memory = 256
	m.Monitor = dir + "/monitor.sock"
	change(&m)
	return m
}

func endsWithReboot(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Paused, m.NoReboot = true, true })
}

func hotPluggable(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.CPU = CPU{Count: 3, Max: 8} })
}

func hotPluggableDies(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.CPU = CPU{Model: "Nehalem,pmu=off", Count: 14, Max: 16, Topology: Topology{Sockets: 2, Dies: 2, Cores: 2, Threads: 2}}
	})
}

func pinned(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Type = "pc-q35-7.2"
		m.CPU = CPU{Model: "Nehalem,-rdtscp,pmu=off", Count: 2, Topology: Topology{Threads: 2}}
	})
}

func micro(dir string) Machine {
	m := node("micro", dir)
	m.Type = "microvm"
	m.Networks[0].Queues = 2
	m.Shares = []Share{{Tag: "data", Path: dir + "/data"}}
	return m
}

func microVirtiofs(dir string) Machine {
	m := virtiofs(dir)
	m.Type, m.Kernel = "microvm", kernel(dir)
	return m
}

func virtiofs(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Shares = []Share{{Tag: "data", Socket: dir + "/virtiofs.sock"}} })
}

func blockDevice(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Disks = []Disk{
			{Serial: "system", Path: dir + "/block-device", BlockDevice: true, BootIndex: 2},
			{Serial: "12345678901234567890", Path: dir + "/data.qcow2", Format: QCOW2},
			{Serial: "cloud-init", Path: dir + "/cloud-init.img", Format: Raw, ReadOnly: true, BootIndex: 1},
		}
	})
}

func cds(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.BootMenu = true
		m.CDs = []CD{{ID: "cd0", Path: dir + "/installer.iso", BootIndex: 1}, {ID: "cd1"}}
	})
}

func cdFromURL(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.CDs = []CD{{ID: "cd0", Path: "https://example.com/installer,1.iso"}} })
}

func uefi(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Firmware = &Firmware{Code: dir + "/code.fd", Vars: dir + "/vars.fd"} })
}

func secureBoot(dir string) Machine {
	m := uefi(dir)
	m.Firmware.Secure = true
	return m
}

func tpm(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.TPM = dir + "/swtpm.sock" })
}

func userNetwork(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Networks = []Network{{MAC: "52:54:00:12:34:56", User: &UserNetwork{
			Subnet: netip.MustParsePrefix("192.168.76.3/24"),
			Forwards: []Forward{
				{HostPort: 50122, GuestPort: 22},
				{Protocol: "udp", Address: netip.MustParseAddr("0.0.0.0"), HostPort: 50153, GuestPort: 53},
			},
		}}, {MAC: "52:54:00:12:34:57", User: &UserNetwork{Isolated: true}}}
	})
}

func networkModels(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		for i, model := range Models {
			m.Networks = append(m.Networks, Network{Model: model, MAC: fmt.Sprintf("52:54:00:12:34:%02x", i), User: &UserNetwork{}})
		}
	})
}

func clock(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Clock = Clock{Base: "2006-06-17T16:01:21", Clock: "vm"} })
}

func clockOfMicroVM(dir string) Machine {
	m := micro(dir)
	m.Clock = Clock{Base: "localtime", Clock: "rt"}
	return m
}

// firmwareByDescriptor has files that QEMU's user cannot open.
func firmwareByDescriptor(dir string) Machine {
	m := uefi(dir)
	m.Firmware.VarsDescriptor = 3
	m.CDs = []CD{{ID: "cd0", Path: dir + "/installer.iso", Descriptor: 4}}
	return m
}

func manyQueues(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Networks = []Network{{MAC: "52:54:00:12:34:56", Tap: "tap-eth0", Queues: 4}}
	})
}

func vhost(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Networks = []Network{{MAC: "52:54:00:12:34:56", Tap: "tap-eth0", VHost: true}}
	})
}

func vnc(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.Display = &Display{VNC: dir + "/vnc.sock", Password: true} })
}

func spice(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Display = &Display{Outputs: 16, Password: true, SPICE: &SPICE{Port: 50159, StreamingVideo: "filter", USBRedirects: maxUSBRedirects}}
	})
}

func commas(dir string) Machine {
	return withMonitor(dir, func(m *Machine) {
		m.Name = "a,b,,c"
		m.Monitor = dir + "/monitor,sock"
		m.Agent = dir + "/agent,sock"
		m.Kernel = kernel(dir)
		m.Kernel.Initrd = dir + "/initrd,1"
		m.Kernel.CommandLine = "console=ttyS0,115200 a=b,c"
		m.Disks = []Disk{{Serial: "rootfs", Path: dir + "/root,fs=1.img"}}
		m.CDs = []CD{{ID: "cd0", Path: dir + "/in,staller.iso"}}
		m.Shares = []Share{{Tag: "a,b", Path: dir + "/x,readonly=on"}}
		m.FirmwareConfig = []FirmwareConfig{{Name: "opt/com.example/a", File: dir + "/config,ign"}}
		m.Display = &Display{VNC: dir + "/vnc,sock"}
		m.Firmware = &Firmware{Code: dir + "/code,.fd", Vars: dir + "/vars,.fd"}
	})
}

func extraArguments(dir string) Machine {
	return withMonitor(dir, func(m *Machine) { m.ExtraArgs = []string{"-device", "virtio-keyboard-pci"} })
}

func TestCommandLinesAreAsRecorded(t *testing.T) {
	for name, machine := range golden {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(mustArgs(t, machine("/run/vm")), "\n") + "\n"
			path := filepath.Join("testdata", name+".golden")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%s (UPDATE=1 writes it)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("command line differs from %s (-recorded +built):\n%s", path, diff)
			}
		})
	}
}

func TestNoRecordIsLeftOver(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if golden[strings.TrimSuffix(filepath.Base(path), ".golden")] == nil {
			t.Errorf("%s belongs to no test", path)
		}
	}
}

func mustArgs(t *testing.T, m Machine) []string {
	t.Helper()
	args, err := m.Args()
	if err != nil {
		t.Fatal(err)
	}
	return args
}
