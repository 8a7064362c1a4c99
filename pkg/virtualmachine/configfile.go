package vmconfig

import (
	"errors"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"
)

// file is the content of ConfigFile: what VM-Operator's runner reads there, so that people and tools find what they know.
// A runner of this project reads only Live from it: what is fixed until QEMU ends comes with its pod, because the file
// may describe a later machine than the one of the pod.
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
	Name             string `json:"name"`
	UUID             string `json:"uuid"`
	UseTPM           bool   `json:"useTpm"`
	Firmware         string `json:"firmware"`
	BootMenu         bool   `json:"bootMenu"`
	PowerdownTimeout int    `json:"powerdownTimeout"`
	CPUModel         string `json:"cpuModel,omitempty"`
	RTCBase          string `json:"rtcBase,omitempty"`
	RTCClock         string `json:"rtcClock,omitempty"`
	MaximumCPUs      int    `json:"maximumCpus"`
	Topology         `json:",inline"`
	CurrentCPUs      int       `json:"currentCpus"`
	MaximumRAM       string    `json:"maximumRam"`
	CurrentRAM       string    `json:"currentRam"`
	Network          []Network `json:"network"`
	Drives           []drive   `json:"drives"`
	Display          *display  `json:"display,omitempty"`
}

type drive struct {
	Type      string `json:"type"`
	Resource  string `json:"resource,omitempty"`
	File      string `json:"file,omitempty"`
	BootIndex *int   `json:"bootindex,omitempty"`
}

type display struct {
	Outputs int    `json:"outputs"`
	Spice   *SPICE `json:"spice,omitempty"`
}

// Marshal returns the content of ConfigFile.
func Marshal(m Machine, l Live) ([]byte, error) {
	if len(l.Media) != m.CDs() {
		return nil, fmt.Errorf("%d media for %d CD drives", len(l.Media), m.CDs())
	}
	v := vm{
		Name: m.Name, UUID: m.UUID, UseTPM: m.TPM, Firmware: m.Firmware, BootMenu: m.BootMenu, PowerdownTimeout: l.PowerdownTimeout,
		CPUModel: m.CPUModel, RTCBase: m.RTCBase, RTCClock: m.RTCClock, MaximumCPUs: m.MaximumCPUs, Topology: m.Topology, CurrentCPUs: l.CurrentCPUs,
		MaximumRAM: Size(m.MaximumRAM), CurrentRAM: Size(l.CurrentRAM), Network: m.Networks,
	}
	media := l.Media
	for _, d := range m.Drives {
		if d.Type == DriveCD {
			v.Drives = append(v.Drives, drive{Type: d.Type, File: media[0], BootIndex: d.BootIndex})
			media = media[1:]
			continue
		}
		v.Drives = append(v.Drives, drive{Type: d.Type, Resource: d.Device(), BootIndex: d.BootIndex})
	}
	if m.Display != nil {
		v.Display = &display{Outputs: m.Display.Outputs, Spice: m.Display.SPICE}
	}
	return yaml.Marshal(file{Runner: runner{Version: Version, DataDir: DataDirectory, GuestShutdownStops: l.GuestShutdownStops, VM: v}})
}

// ParseLive returns what can change while QEMU runs, from the content of ConfigFile.
func ParseLive(text []byte) (Live, error) {
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		return Live{}, fmt.Errorf("parsing the configuration: %w", err)
	}
	r := f.Runner
	ram, err := parseSize(r.VM.CurrentRAM)
	if err != nil {
		return Live{}, fmt.Errorf("currentRam: %w", err)
	}
	l := Live{CurrentCPUs: r.VM.CurrentCPUs, CurrentRAM: ram, PowerdownTimeout: r.VM.PowerdownTimeout, GuestShutdownStops: r.GuestShutdownStops}
	for _, d := range r.VM.Drives {
		if d.Type == DriveCD {
			l.Media = append(l.Media, d.File)
		}
	}
	if l.CurrentCPUs < 1 || l.PowerdownTimeout < 1 {
		return Live{}, errors.New("currentCpus and powerdownTimeout have to be positive")
	}
	return l, nil
}

// units are those of VM-Operator's configuration, the largest first.
var units = []struct {
	name string
	size int64
}{
	{"EiB", 1 << 60}, {"EB", 1e18}, {"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3},
}

// Size returns a number of bytes with the largest unit that divides it: 8 GiB, 1 GB.
func Size(bytes int64) string {
	for _, unit := range units {
		if bytes != 0 && bytes%unit.size == 0 {
			return strconv.FormatInt(bytes/unit.size, 10) + " " + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// parseSize parses what Size returns.
func parseSize(text string) (int64, error) {
	number, unit := text, ""
	for i, r := range text {
		if r == ' ' {
			number, unit = text[:i], text[i+1:]
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size such as 8 GiB", text)
	}
	for _, u := range units {
		if u.name == unit && n <= (1<<63-1)/u.size {
			return n * u.size, nil
		}
	}
	if unit != "" {
		return 0, fmt.Errorf("%q is not a size such as 8 GiB", text)
	}
	return n, nil
}
