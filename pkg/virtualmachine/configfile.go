package virtualmachine

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// file is the content of vmconfig.ConfigName: what VM-Operator's runner reads, so that people and tools find what they
// know.
type file struct {
	Runner runner `json:"/Runner"`
}

type runner struct {
	Version            int    `json:"version"`
	DataDir            string `json:"dataDir"`
	GuestShutdownStops bool   `json:"guestShutdownStops"`
	VM                 vm     `json:"vm"`
}

type vm struct {
	Name              string `json:"name"`
	UUID              string `json:"uuid"`
	UseTPM            bool   `json:"useTpm"`
	Firmware          string `json:"firmware"`
	BootMenu          bool   `json:"bootMenu"`
	PowerdownTimeout  int    `json:"powerdownTimeout"`
	CPUModel          string `json:"cpuModel,omitempty"`
	RTCBase           string `json:"rtcBase,omitempty"`
	RTCClock          string `json:"rtcClock,omitempty"`
	MaximumCPUs       int    `json:"maximumCpus"`
	vmconfig.Topology `json:",inline"`
	CurrentCPUs       int                `json:"currentCpus"`
	MaximumRAM        string             `json:"maximumRam"`
	CurrentRAM        string             `json:"currentRam"`
	Network           []vmconfig.Network `json:"network"`
	Drives            []drive            `json:"drives"`
	Display           *display           `json:"display,omitempty"`
}

type drive struct {
	Type      string `json:"type"`
	Resource  string `json:"resource,omitempty"`
	File      string `json:"file,omitempty"`
	BootIndex *int   `json:"bootindex,omitempty"`
}

type display struct {
	Outputs int             `json:"outputs"`
	Spice   *vmconfig.SPICE `json:"spice,omitempty"`
}

// configFile returns the content of vmconfig.ConfigName.
func configFile(m vmconfig.Machine, l vmconfig.Live) ([]byte, error) {
	if len(l.Media) != m.CDs() {
		return nil, fmt.Errorf("%d media for %d CD drives", len(l.Media), m.CDs())
	}
	v := vm{
		Name: m.Name, UUID: m.UUID, UseTPM: m.TPM, Firmware: m.Firmware, BootMenu: m.BootMenu, PowerdownTimeout: l.PowerdownTimeout,
		CPUModel: m.CPUModel, RTCBase: m.RTCBase, RTCClock: m.RTCClock, MaximumCPUs: m.MaximumCPUs, Topology: m.Topology, CurrentCPUs: l.CurrentCPUs,
		MaximumRAM: size(m.MaximumRAM), CurrentRAM: size(l.CurrentRAM), Network: m.Networks,
	}
	media := l.Media
	for _, d := range m.Drives {
		if d.Type == vmconfig.DriveCD {
			v.Drives = append(v.Drives, drive{Type: d.Type, File: media[0], BootIndex: d.BootIndex})
			media = media[1:]
			continue
		}
		v.Drives = append(v.Drives, drive{Type: d.Type, Resource: d.Device(), BootIndex: d.BootIndex})
	}
	if m.Display != nil {
		v.Display = &display{Outputs: m.Display.Outputs, Spice: m.Display.SPICE}
	}
	return yaml.Marshal(file{Runner: runner{Version: vmconfig.Version, DataDir: vmconfig.DataDirectory, GuestShutdownStops: l.GuestShutdownStops, VM: v}})
}

// units are those of VM-Operator's configuration, the largest first.
var units = []struct {
	name string
	size int64
}{
	{"EiB", 1 << 60}, {"EB", 1e18}, {"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3},
}

// size returns a number of bytes with the largest unit that divides it: 8 GiB, 1 GB.
func size(bytes int64) string {
	for _, unit := range units {
		if bytes != 0 && bytes%unit.size == 0 {
			return strconv.FormatInt(bytes/unit.size, 10) + " " + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}
