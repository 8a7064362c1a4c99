package noderunner

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// SerialOS is the serial number of the disk with the guest's root file system.
const SerialOS = "rootfs"

// serialImage is the serial number of the read-only disk with the image's root file system.
const serialImage = "guestos"

// Settings are everything that the runner needs to know.
type Settings struct {
	// Settings are the keeper's. Their Name is also the guest's host name: the name of the pod.
	keeper.Settings
	// Source is the image that the guest boots.
	osimage.Source
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
	// State is the directory for what outlives a restart of the runner: disks and the pod's network.
	State string
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
	// Nested lets the guest run its own virtual machines.
	Nested bool
	// ExtraArgs are appended to QEMU's command line.
	ExtraArgs []string
	// Health is the guest's port whose /healthz reports the health of its kubelet; 0 disables the check.
	Health int
	// API is the port of a master's API server whose /readyz reports whether it serves; 0 disables the check.
	API int
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

// Validate returns an error that names all missing and invalid settings.
func (s Settings) Validate() error {
	errs := []error{s.Settings.Validate()}
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(s.CPUs > 0, "the number of CPUs is %d and has to be 1 at least", s.CPUs)
	require(s.Memory > 0, "the memory is %d MiB and has to be more", s.Memory)
	require(len(s.BootData) > 0, "the path of the boot data is missing")
	require(slices.Contains([]string{NetworkPod, NetworkProxy, NetworkUser}, s.Network), "the network is %q and has to be %s, %s or %s",
		s.Network, NetworkPod, NetworkProxy, NetworkUser)
	require(len(s.Ports) == 0 || s.Network == NetworkProxy, "ports are published on the network %s only", NetworkProxy)
	require(!s.ForeignSources || s.Network == NetworkPod, "the guest may send with foreign addresses on the network %s only", NetworkPod)
	require(s.State != "" && s.Run != "" && s.Images != "", "the directories for state, sockets and images are all needed")
	require(s.Health >= 0 && s.Health < 1<<16, "the health port is %d and has to be less than 65536", s.Health)
	require(s.API >= 0 && s.API < 1<<16, "the API port is %d and has to be less than 65536", s.API)
	require(slices.Contains([]qemu.Mode{"", qemu.ModeAuto, qemu.ModeKVM, qemu.ModeTCG}, qemu.Mode(strings.ToLower(string(s.Acceleration)))),
		"the acceleration is %q and has to be auto, kvm or tcg", s.Acceleration)
	err := errors.Join(errs...)
	if err == nil {
		// Arguments that QEMU cannot be given are found before anything is created for it.
		_, err = s.Complete(machine(s, example)).Args()
	}
	return err
}

// example stands for what will have been prepared.
var example = prepared{
	image: osimage.Local{Kernel: "kernel", Initrd: "initrd"}, choice: qemu.Choice{Accelerator: qemu.TCG},
	card: qemu.Network{Tap: guestnet.TapName, MAC: "02:00:00:00:00:01", MTU: 1500},
}

func (s Settings) diskPath(d Disk) string { return filepath.Join(s.State, d.Serial+".img") }
func (s Settings) ownImages() string      { return filepath.Join(s.State, "images") }
func (s Settings) networkState() string   { return filepath.Join(s.State, "network.json") }
func (s Settings) ignition() string       { return filepath.Join(s.Run, "ignition.json") }
