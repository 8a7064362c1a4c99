package vmrunner

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudinit"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// ParkedFor is for how long a machine that is to be started again is parked, so that the operator can replace its pod.
const ParkedFor = 30 * time.Second

// Settings are everything that the runner needs to know.
type Settings struct {
	// Settings are the keeper's. Their Name is the machine's. The guest has no time in which it has to show a sign of
	// life, because an installer or the shell of a firmware shows none: Timeouts.Boot is 0. Timeouts.Powerdown is for a
	// machine without a configuration file.
	keeper.Settings
	// Version is the runner's, for reports.
	Version string
	// Machine is the part of the machine that is fixed until QEMU ends.
	Machine vmconfig.Machine
	// Config is the file with the part that can change. Without it, the guest has all CPUs and memory from the start.
	Config string
	// CloudInit is the directory with the files for cloud-init.
	CloudInit string
	// Display is the directory with the files of the display's Secret.
	Display string
	// Data is the directory for what outlives the pod: the firmware's variables.
	Data string
	// Images is the directory with the images of CDs that are given as a file name.
	Images string
	// Devices is the directory with the disks, each under its name.
	Devices string
	// State is a directory that outlives the runner, but not the pod.
	State string
	// DNSServers and SearchDomains are announced to the guest of a network of type pod, by DHCP.
	DNSServers    []netip.Addr
	SearchDomains []string
	// Kernel is the path of the kernel that a canary boots to prove that KVM works. Empty: nothing is proved.
	Kernel string
	// AllowEmulation allows emulation of the guest in software; otherwise a machine without KVM does not start.
	AllowEmulation bool
	// ParkedFor is for how long a machine that is to be started again is parked; see the constant. 0 or more.
	ParkedFor time.Duration
}

// cloudInitSerial is the serial number of the disk for cloud-init. Names of disks have no upper-case letters.
const cloudInitSerial = cloudinit.Label

// diskName matches names that are no path, and need no escapes.
var diskName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// Validate returns an error that names all missing and invalid settings.
func (s Settings) Validate() error {
	errs := []error{s.Settings.Validate()}
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(s.Config != "" && s.Data != "" && s.Devices != "" && s.State != "", "the configuration file and the directories for data, disks and state are all needed")
	require(s.CloudInit != "" || !s.Machine.CloudInit, "the directory with the files for cloud-init is missing")
	require(s.Display != "" || !s.hasPassword(), "the directory with the password of the display is missing")
	require(s.ParkedFor >= 0, "the time to be parked has to be positive")
	for _, d := range s.disks() {
		require(diskName.MatchString(d.Name), "the name of a disk is %q, and has to be lower-case letters, digits, '.', '_' or '-'", d.Name)
	}
	for i, d := range s.Machine.Drives {
		require(d.BootIndex == nil || *d.BootIndex >= 0, "drive %d has a negative bootindex: places count from 0", i)
	}
	_, err := networks(s.Machine, s.example().cards)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Arguments that QEMU cannot be given are found before anything is created for it.
	_, err = s.Complete(machine(s, all(s.Machine), s.example())).Args()
	return err
}

// example stands for what will have been prepared.
func (s Settings) example() prepared {
	p := prepared{choice: qemu.Choice{Accelerator: qemu.TCG}, disks: map[string]opened{}, cards: map[int]qemu.Network{}}
	if s.Machine.Firmware != vmconfig.FirmwareBIOS {
		p.firmware = &qemu.Firmware{Code: "code", Vars: "vars", Secure: strings.HasPrefix(s.Machine.Firmware, vmconfig.FirmwareSecure)}
	}
	if s.Machine.TPM {
		p.tpmDescriptor = keeper.FirstDescriptor
	}
	for i, n := range s.Machine.Networks {
		if n.Type != vmconfig.NetworkUser {
			p.cards[i] = qemu.Network{Tap: fmt.Sprintf("tap%d", i), TapDescriptor: keeper.FirstDescriptor}
		}
	}
	return p
}

// disks are the drives that are no CD drives.
func (s Settings) disks() (disks []vmconfig.Drive) {
	for _, d := range s.Machine.Drives {
		if d.Type != vmconfig.DriveCD {
			disks = append(disks, d)
		}
	}
	return disks
}

// device returns the path of a disk.
func (s Settings) device(d vmconfig.Drive) string { return filepath.Join(s.Devices, d.Name) }
