// Package runner runs one virtual machine: it prepares boot data, image, disks and network, runs QEMU, supervises it
// and ends it without losing data. It knows nothing of Kubernetes; cmd/runner fills its settings from a node pod's
// environment.
package runner

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// Names of networks.
const (
	// NetworkPod gives the machine the address of the pod.
	NetworkPod = "pod"
	// NetworkProxy also gives the machine the address of the pod, but the pod keeps its network: the runner carries the
	// guest's connections. It needs no privileges. Other hosts reach the guest only at Settings.Ports.
	NetworkProxy = "proxy"
	// NetworkUser puts the machine behind QEMU's own address translation. It needs no privileges, and the guest cannot
	// be reached.
	NetworkUser = "user"
)

// SerialOS is the serial number of the disk with the guest's root file system.
const SerialOS = "rootfs"

// serialImage is the serial number of the read-only disk with the image's root file system.
const serialImage = "guestos"

// Settings are everything that the runner needs to know.
type Settings struct {
	// Name is the guest's host name: the name of the pod.
	Name string
	// MachineType is QEMU's machine type; empty means q35.
	MachineType string
	// CPUs is how many processors the guest has, at least 1.
	CPUs int
	// Memory is the guest's memory in MiB.
	Memory int64
	// Disks are created on the first start, in this order.
	Disks []Disk
	// DNSServers and NTPServers are announced to the guest by DHCP.
	DNSServers, NTPServers []netip.Addr
	// SearchDomains are announced to the guest by DHCP; see guestnet.Options.
	SearchDomains []string
	// BootData are the files with the halves of the boot data, public first. There is at least one.
	BootData []string
	ImageSettings
	// State is the directory for what outlives a restart of the runner: disks and the pod's network.
	State string
	// Run is the directory for what does not: sockets.
	Run string
	// Etcd is the directory, or block device, with etcd's data, which the guest sees as "etcdshare". It is empty on
	// workers.
	Etcd string
	// EtcdDisk is the size in bytes of the disk that is created for etcd's data in its directory if that is empty; with
	// 0 the directory is shared.
	EtcdDisk int64
	// Shares are directories of the host that the guest mounts by their tags.
	Shares []Share
	// ForeignSources lets the guest send from addresses that are not its own; see guestnet.Options.
	ForeignSources bool
	// Network is NetworkPod, NetworkProxy or NetworkUser.
	Network string
	// Ports are those at which other hosts reach a guest behind NetworkProxy.
	Ports []usernet.Port
	// Acceleration says whether the guest runs on KVM.
	Acceleration qemu.Mode
	// AllowEmulation allows emulation of the guest in software; otherwise a machine without KVM does not start.
	AllowEmulation bool
	// Nested lets the guest run virtual machines of its own.
	Nested bool
	// QEMU is the program, by name or path.
	QEMU string
	// QEMUUser is the number of the user and group that QEMU runs as. 0 is the runner's own; a runner that is not root
	// always uses its own.
	QEMUUser int
	// ExtraArgs are appended to QEMU's command line.
	ExtraArgs []string
	// Health is the guest's port whose /healthz reports the health of its kubelet; 0 disables the check.
	Health int
	// API is the port of a master's API server whose /readyz reports whether it serves; 0 disables the check.
	API int
	// TerminationLog is the file for the reason of the end; empty for none.
	TerminationLog string
	// Timeouts bound each step.
	Timeouts Timeouts
}

// Disk is a disk of the guest.
type Disk struct {
	// Serial is the serial number by which the guest finds it, at most 20 bytes.
	Serial string
	// Size is in bytes.
	Size int64
}

// Share is a directory that the guest mounts over 9p.
type Share struct {
	// Tag is the name by which the guest mounts it.
	Tag string
	// Path is the directory.
	Path string
}

// Timeouts bound each step of a machine's life.
type Timeouts struct {
	// Lock is how long to wait for another machine that uses a disk of this one. A pod is replaced while it still shuts
	// down.
	Lock time.Duration
	// Start is how long QEMU may take until it responds.
	Start time.Duration
	// Boot is how long the guest may take until it writes to a disk or sends a packet. After that it is considered
	// hung, and the machine is reset; 0 never resets it. After each reset the time doubles.
	Boot time.Duration
	// Hold is how long the machine is kept running after SIGTERM until it is released; 0 does not wait.
	Hold time.Duration
	// Powerdown is how long the guest may take to shut down.
	Powerdown time.Duration
	// Quit is how long QEMU may take to quit if the guest did not shut down.
	Quit time.Duration
	// Monitor is how long QEMU may not respond to a query while it runs. After that it is considered dead and killed.
	Monitor time.Duration
}

// DefaultTimeouts suit a node pod with a grace period of ten minutes.
var DefaultTimeouts = Timeouts{
	Lock: 10 * time.Minute, Start: time.Minute, Boot: 5 * time.Minute, Hold: 0, Powerdown: 4 * time.Minute, Quit: 15 * time.Second, Monitor: 2 * time.Minute,
}

// Validate returns an error that names all missing and invalid settings.
func (s Settings) Validate() error {
	var errs []error
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(s.Name != "", "the name of the machine is missing")
	require(s.CPUs > 0, "the number of CPUs is %d and has to be 1 at least", s.CPUs)
	require(s.Memory > 0, "the memory is %d MiB and has to be more", s.Memory)
	require(len(s.BootData) > 0, "the path of the boot data is missing")
	require(slices.Contains([]string{NetworkPod, NetworkProxy, NetworkUser}, s.Network), "the network is %q and has to be %s, %s or %s",
		s.Network, NetworkPod, NetworkProxy, NetworkUser)
	require(len(s.Ports) == 0 || s.Network == NetworkProxy, "ports are published on the network %s only", NetworkProxy)
	require(!s.ForeignSources || s.Network == NetworkPod, "the guest may send with foreign addresses on the network %s only", NetworkPod)
	require(s.State != "" && s.Run != "" && s.Images != "", "the directories for state, sockets and images are all needed")
	require(s.Timeouts.Hold >= 0 && s.Timeouts.Lock >= 0 && s.Timeouts.Boot >= 0, "the timeouts have to be positive")
	require(len(s.socket()) <= maxSocketPath, "the directory of sockets %s is longer than the path of a socket can be (%d bytes)", s.Run, maxSocketPath)
	require(s.QEMUUser >= 0 && s.QEMUUser <= maxUser, "QEMU's user is %d and has to be between 0 and %d", s.QEMUUser, maxUser)
	require(s.Health >= 0 && s.Health < 1<<16, "the health port is %d and has to be less than 65536", s.Health)
	require(s.API >= 0 && s.API < 1<<16, "the API port is %d and has to be less than 65536", s.API)
	require(slices.Contains([]qemu.Mode{"", qemu.ModeAuto, qemu.ModeKVM, qemu.ModeTCG}, qemu.Mode(strings.ToLower(string(s.Acceleration)))),
		"the acceleration is %q and has to be auto, kvm or tcg", s.Acceleration)
	require(s.Timeouts.Start > 0 && s.Timeouts.Powerdown > 0 && s.Timeouts.Quit > 0 && s.Timeouts.Monitor > 0,
		"the timeouts have to be more than nothing")
	if len(errs) == 0 {
		// Arguments that QEMU cannot be given are found before anything is created for it.
		_, err := machine(s, example).Args()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// QEMUUser is the user that QEMU runs as: the one that Debian reserves for it (libvirt-qemu). Neither the runner's
// image nor a host needs to have its name.
const QEMUUser = 64055

// maxUser is the largest user number (user_namespaces(7): 4294967295 means none).
const maxUser = 1<<32 - 2

// maxSocketPath is how long the path of a socket may be, in bytes (unix(7)).
const maxSocketPath = 107

// example stands for what will have been prepared.
var example = &prepared{
	image: osimage.Local{Kernel: "kernel", Initrd: "initrd"}, choice: qemu.Choice{Accelerator: qemu.TCG},
	card: qemu.Network{Tap: guestnet.TapName, MAC: "02:00:00:00:00:01", MTU: 1500},
}

func (s Settings) diskPath(d Disk) string { return filepath.Join(s.State, d.Serial+".img") }
func (s Settings) ownImages() string      { return filepath.Join(s.State, "images") }
func (s Settings) networkState() string   { return filepath.Join(s.State, "network.json") }
func (s Settings) socket() string         { return filepath.Join(s.Run, SocketName) }
func (s Settings) monitor() string        { return filepath.Join(s.Run, "qmp.sock") }
func (s Settings) agent() string          { return filepath.Join(s.Run, "agent.sock") }
func (s Settings) qemuRoot() string       { return filepath.Join(s.Run, "root") }
func (s Settings) ignition() string       { return filepath.Join(s.Run, "ignition.json") }
