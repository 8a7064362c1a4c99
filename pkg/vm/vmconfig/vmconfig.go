// Package vmconfig is what an operator and the runner of a virtual machine agree on: the part of a machine that is fixed
// until its QEMU ends, and the part that can change while it runs. It is the contract between a runner and an operator
// of the same major version: unknown fields are ignored.
package vmconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Version is the version of the schema.
const Version = 1

// Variable is the variable of the runner's environment that has the Machine, as JSON.
const Variable = "MACHINE"

// Paths in the runner's container.
const (
	// ConfigFile has the File. The directory also has the files of the display's Secret.
	ConfigFile = "/etc/opt/vmrunner/config.yaml"
	// CloudInitDirectory has the files CloudInitFiles.
	CloudInitDirectory = "/etc/opt/vmrunner-cloud-init"
	// DataDirectory keeps what survives a restart: the firmware's variables, the state of the TPM.
	DataDirectory = "/var/local/vm-data"
	// StateDirectory keeps what survives the runner but not the pod: that the guest shut itself down.
	StateDirectory = "/var/local/vm-state"
	// ImageRepository has the images of CDs that are given as a file name.
	ImageRepository = "/var/local/vmop-image-repository"
)

// CloudInitFiles are the files of a NoCloud data source, of which the last is optional.
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html)
var CloudInitFiles = []string{"meta-data", "user-data", "network-config"}

// Types of a Network.
const (
	// NetworkUser is QEMU's own network behind the pod's.
	NetworkUser = "user"
	// NetworkTap is an interface in a bridge of the host.
	NetworkTap = "tap"
)

// Types of a Drive.
const (
	DriveRaw = "raw"
	DriveCD  = "ide-cd"
)

// Firmware modes.
const (
	FirmwareBIOS     = "bios"
	FirmwareUEFI     = "uefi"
	FirmwareUEFI4M   = "uefi-4m"
	FirmwareSecure   = "secure"
	FirmwareSecure4M = "secure-4m"
)

// Machine is the part of a virtual machine that takes effect when its QEMU starts. A change needs a restart.
type Machine struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	// Type is QEMU's machine type; empty for the newest q35.
	Type string `json:"machineType,omitempty"`
	// Acceleration is auto, kvm or tcg, which is emulation.
	Acceleration string   `json:"acceleration,omitempty"`
	Firmware     string   `json:"firmware"`
	BootMenu     bool     `json:"bootMenu,omitempty"`
	TPM          bool     `json:"useTpm,omitempty"`
	CPUModel     string   `json:"cpuModel,omitempty"`
	MaximumCPUs  int      `json:"maximumCpus"`
	Topology     Topology `json:"topology,omitzero"`
	// MaximumRAM is in bytes, a multiple of 1 MiB.
	MaximumRAM int64     `json:"maximumRam"`
	RTCBase    string    `json:"rtcBase,omitempty"`
	RTCClock   string    `json:"rtcClock,omitempty"`
	Networks   []Network `json:"network,omitempty"`
	// Drives are in the order of the machine's declaration.
	Drives    []Drive  `json:"drives,omitempty"`
	Display   *Display `json:"display,omitempty"`
	CloudInit bool     `json:"cloudInit,omitempty"`
	// ExtraArgs are appended to QEMU's command line.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// Topology is the arrangement of CPUs. A part that is 0 is left to QEMU.
type Topology struct {
	Sockets int `json:"sockets,omitempty"`
	Dies    int `json:"diesPerSocket,omitempty"`
	Cores   int `json:"coresPerDie,omitempty"`
	Threads int `json:"threadsPerCore,omitempty"`
}

// Network is one network interface.
type Network struct {
	Type   string `json:"type"`
	Device string `json:"device,omitempty"`
	// Bridge and MAC are for a tap; Net is the guest's subnet behind a user network, such as 10.9.0.0/24.
	Bridge string `json:"bridge,omitempty"`
	MAC    string `json:"mac,omitempty"`
	Net    string `json:"net,omitempty"`
}

// Drive is one disk or CD drive.
type Drive struct {
	Type string `json:"type"`
	// Name is the disk's name: /dev/<name> in the container, and, with cloud-init, in the guest. CD drives have none.
	Name string `json:"name,omitempty"`
	// BootIndex is the place in the order in which firmware tries to boot, from 0. nil: not at all.
	BootIndex *int `json:"bootindex,omitempty"`
}

// Device returns the path of a disk in the container.
func (d Drive) Device() string { return "/dev/" + d.Name }

// Display is the screen, and how it is served.
type Display struct {
	Outputs int    `json:"outputs"`
	SPICE   *SPICE `json:"spice,omitempty"`
}

// SPICE serves the display by the SPICE protocol.
type SPICE struct {
	Port           int    `json:"port"`
	USBRedirects   int    `json:"usbRedirects"`
	StreamingVideo string `json:"streamingVideo,omitempty"`
}

// Live is the part of a virtual machine that can change while its QEMU runs.
type Live struct {
	CurrentCPUs int `json:"currentCpus"`
	// CurrentRAM is in bytes.
	CurrentRAM int64 `json:"currentRam"`
	// PowerdownTimeout is in seconds.
	PowerdownTimeout int `json:"powerdownTimeout"`
	// GuestShutdownStops says that a machine whose guest shut down is not started again.
	GuestShutdownStops bool `json:"guestShutdownStops"`
	// Media are the images in the CD drives, in the order of the drives: a path, a URL, or empty.
	Media []string `json:"media,omitempty"`
}

// CDs returns how many CD drives a machine has.
func (m Machine) CDs() int {
	count := 0
	for _, drive := range m.Drives {
		if drive.Type == DriveCD {
			count++
		}
	}
	return count
}

// Encode returns the machine as the value of Variable.
func (m Machine) Encode() (string, error) {
	m.Version = Version
	text, err := json.Marshal(m)
	return string(text), err
}

// Hash identifies the content of a machine.
func (m Machine) Hash() (string, error) {
	text, err := m.Encode()
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8]), err
}

// Decode parses the value of Variable.
func Decode(text string) (Machine, error) {
	var m Machine
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Machine{}, fmt.Errorf("%s is not a machine in JSON: %w", Variable, err)
	}
	if m.Version != Version {
		return Machine{}, fmt.Errorf("%s has version %d and this runner understands version %d: use a runner and an operator of the same major version", Variable, m.Version, Version)
	}
	return m, m.check()
}

func (m Machine) check() error {
	var errs []error
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(m.Name != "", "the name of the machine is missing")
	require(m.MaximumCPUs > 0, "maximumCpus is %d and has to be positive", m.MaximumCPUs)
	require(m.MaximumRAM >= 1<<20, "maximumRam is %d bytes and has to be at least 1 MiB", m.MaximumRAM)
	require(slices.Contains([]string{FirmwareBIOS, FirmwareUEFI, FirmwareUEFI4M, FirmwareSecure, FirmwareSecure4M}, m.Firmware), "firmware %q is unknown", m.Firmware)
	for i, network := range m.Networks {
		require(network.Type == NetworkUser || network.Type == NetworkTap, "network %d has the unknown type %q", i, network.Type)
	}
	for i, drive := range m.Drives {
		require(drive.Type == DriveCD || drive.Type == DriveRaw && drive.Name != "", "drive %d has the unknown type %q, or no name", i, drive.Type)
	}
	return errors.Join(errs...)
}
