// Package vmconfig is what an operator and the runner of a virtual machine agree on: the part of a machine that is fixed
// until its QEMU ends, and the part that can change while it runs. It is the contract between a runner and an operator
// of the same major version: unknown fields are ignored.
package vmconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Version is the version of the schema.
const Version = 1

// Variable is the variable of the runner's environment that has the Machine, as JSON.
const Variable = "MACHINE"

// Paths in the runner's container.
const (
	// ConfigDirectory has the file LiveName, and ConfigName for people.
	ConfigDirectory = "/etc/opt/vmrunner"
	// CloudInitDirectory has the files CloudInitFiles.
	CloudInitDirectory = "/etc/opt/vmrunner-cloud-init"
	// DisplayDirectory has the files DisplayPassword and DisplayExpiry.
	DisplayDirectory = "/etc/opt/vmrunner-display"
	// DataDirectory keeps what survives a restart: the firmware's variables, the state of the TPM.
	DataDirectory = "/var/local/vm-data"
	// StateDirectory keeps what survives the runner but not the pod: that the guest shut itself down.
	StateDirectory = "/var/local/vm-state"
	// ImageRepository has the images of CDs that are given as a file name.
	ImageRepository = "/var/local/vmop-image-repository"
)

// Names of files in ConfigDirectory.
const (
	// LiveName has the Live, as JSON.
	LiveName = "live.json"
	// LiveFile is its path.
	LiveFile = ConfigDirectory + "/" + LiveName
	// ConfigName describes the whole machine as VM-Operator's runner reads it. A runner of this project does not read
	// it, because it may describe a later machine than the one of the runner's pod.
	ConfigName = "config.yaml"
)

// CloudInitFiles are the files of a NoCloud data source, of which the last is optional.
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html)
var CloudInitFiles = []string{"meta-data", "user-data", "network-config"}

// Files of the Secret of a display.
const (
	// DisplayPassword has the password, 1 to MaxPassword bytes.
	DisplayPassword = "display-password"
	// DisplayExpiry says when it expires: "now", "never", "+" and seconds from when it is set, or a unix time in seconds.
	// Without the file, it does not expire.
	DisplayExpiry = "password-expiry"
	// MaxPassword is how long the password of a SPICE server may be, in bytes (SPICE_MAX_PASSWORD_LENGTH of
	// spice/protocol.h).
	MaxPassword = 60
)

// Types of a Network.
const (
	// NetworkUser is QEMU's own network behind the pod's.
	NetworkUser = "user"
	// NetworkTap is an interface in a bridge of the host. The pod is in the host's network.
	NetworkTap = "tap"
	// NetworkPod is the pod's own network, which the guest takes over. It is the machine's only one.
	NetworkPod = "pod"
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
	// DiskLinks says that the guest gets /dev/<name> for each disk, by cloud-init.
	DiskLinks bool `json:"diskLinks,omitempty"`
	// ExtraArgs are appended to QEMU's command line.
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// Has returns whether the machine has a network of the given type.
func (m Machine) Has(network string) bool {
	return slices.ContainsFunc(m.Networks, func(n Network) bool { return n.Type == network })
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
	// Isolated says that a user network leads nowhere.
	Isolated bool `json:"isolated,omitempty"`
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
	// Password says that the display is locked unless a Secret has a valid password. Otherwise it is served on the
	// loopback address of the pod alone.
	Password bool `json:"password,omitempty"`
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

// Difference returns the names of the fields in which two machines differ, sorted.
func Difference(a, b Machine) []string {
	one, other := fields(a), fields(b)
	var names []string
	for name, value := range one {
		if !bytes.Equal(value, other[name]) {
			names = append(names, name)
		}
	}
	for name := range other {
		if _, ok := one[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fields returns a machine by the names of its fields.
func fields(m Machine) map[string]json.RawMessage {
	m.Version = Version
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // the types can be encoded
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	return all
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

// Encode returns the content of the file LiveName.
func (l Live) Encode() (string, error) {
	text, err := json.Marshal(l)
	return string(text), err
}

// ParseLive parses the content of the file LiveName.
func ParseLive(text []byte) (Live, error) {
	var l Live
	if err := json.Unmarshal(text, &l); err != nil {
		return Live{}, fmt.Errorf("%s is not JSON: %w", LiveName, err)
	}
	if err := l.check(); err != nil {
		return Live{}, fmt.Errorf("%s: %w", LiveName, err)
	}
	return l, nil
}

func (l Live) check() error {
	if l.CurrentCPUs < 1 || l.CurrentRAM < 1 || l.PowerdownTimeout < 1 {
		return errors.New("currentCpus, currentRam and powerdownTimeout have to be positive")
	}
	return nil
}

// Same returns whether two Lives are the same.
func (l Live) Same(other Live) bool {
	media := slices.Equal(l.Media, other.Media)
	l.Media, other.Media = nil, nil
	return media && reflect.DeepEqual(l, other)
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
		require(slices.Contains([]string{NetworkUser, NetworkTap, NetworkPod}, network.Type), "network %d has the unknown type %q", i, network.Type)
		require(network.Type != NetworkPod || len(m.Networks) == 1, "network %d is of type %s, beside which there is no other", i, NetworkPod)
	}
	for i, drive := range m.Drives {
		require(drive.Type == DriveCD || drive.Type == DriveRaw && drive.Name != "", "drive %d has the unknown type %q, or no name", i, drive.Type)
	}
	return errors.Join(errs...)
}
