package vmconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestagent"
)

// LinkProtocol is the protocol of the link between a runner and its operator, on the runner's control socket at LinkPath
// and on the standard input and output of `runner link`: an operator sends Orders and a runner Reports, each as one line
// of JSON. Both say everything that they know, at the beginning and after each change, so a link can be cut at any time.
const (
	LinkProtocol = "link"
	LinkPath     = "/link"
)

// MaxLine is how long an Order or a Report may be, in bytes.
const MaxLine = 64 << 10

// Order is what an operator tells a runner.
type Order struct {
	Version int `json:"version"`
	// Live is what the machine is to be. Without Media, what is in the CD drives stays there.
	Live Live `json:"live"`
}

// Names of parts of a machine that can change, in Report.Problems.
const (
	PartCPUs  = "currentCpus"
	PartRAM   = "currentRam"
	PartMedia = "cdrom"
	// PartDisks are disks, which can become larger.
	PartDisks = "disks"
	// PartDisplay is the display, whose Secret can change.
	PartDisplay = "display"
)

// Report is what a runner tells its operator.
type Report struct {
	Version int `json:"version"`
	// State is what the runner does, such as Running, and Step what it waits for (package keeper).
	State string `json:"state"`
	Step  string `json:"step,omitempty"`
	// Accelerator is kvm or tcg.
	Accelerator string `json:"accelerator,omitempty"`
	// Runner is the version of the runner, and MachineType the type of QEMU's machine, such as pc-q35-10.0; empty if it is
	// not known.
	Runner      string `json:"runner,omitempty"`
	MachineType string `json:"machineType,omitempty"`
	// Wanted is what the machine is to be, as far as the runner knows.
	Wanted Live `json:"wanted"`
	// Busy says that the machine is being changed to that.
	Busy bool `json:"busy,omitempty"`
	// CPUs are those that QEMU has, and RAM is what the balloon leaves the guest, in bytes. 0: not known.
	CPUs int   `json:"cpus,omitempty"`
	RAM  int64 `json:"ram,omitempty"`
	// OS is what the guest agent says about its operating system; nil if none answers.
	OS *OS `json:"os,omitempty"`
	// Disks are the sizes of disks that the guest sees, in bytes, by the disk's name.
	Disks map[string]int64 `json:"disks,omitempty"`
	// Display is about the display; nil if the machine serves none.
	Display *DisplayReport `json:"display,omitempty"`
	// Problems say why the machine is not what it is to be, by the name of the part.
	Problems map[string]string `json:"problems,omitempty"`
}

// OS is what a guest agent says about its operating system. It is not trusted; see its method Printable.
type OS = guestagent.OSInfo

// DisplayReport is what a runner reports of a display.
type DisplayReport struct {
	// Serial is how often a password was set since QEMU's start; -1 without protection by a password.
	Serial int `json:"serial"`
	// Client is the address of the viewer that connected last; empty if none is connected.
	Client string `json:"client,omitempty"`
}

// Encode returns the order as a line.
func (o Order) Encode() ([]byte, error) {
	o.Version = Version
	return line(o)
}

// Encode returns the report as a line.
func (r Report) Encode() ([]byte, error) {
	r.Version = Version
	return line(r)
}

func line(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return append(text, '\n'), err
}

// DecodeOrder parses a line.
func DecodeOrder(text []byte) (Order, error) {
	var o Order
	if err := json.Unmarshal(text, &o); err != nil {
		return Order{}, fmt.Errorf("an order is not JSON: %w", err)
	}
	return o, errors.Join(checkVersion(o.Version), o.Live.check())
}

// DecodeReport parses a line.
func DecodeReport(text []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return Report{}, fmt.Errorf("a report is not JSON: %w", err)
	}
	return r, checkVersion(r.Version)
}

func checkVersion(version int) error {
	if version != Version {
		return fmt.Errorf("the line has version %d, and %d is understood: use a runner and an operator of the same major version", version, Version)
	}
	return nil
}

// AddProblem adds why a part is not what it is to be; the empty text adds nothing.
func (r *Report) AddProblem(part, problem string) {
	if problem == "" {
		return
	}
	if r.Problems == nil {
		r.Problems = map[string]string{}
	}
	r.Problems[part] = problem
}

// Same returns whether two reports say the same.
func (r Report) Same(other Report) bool {
	one, _ := r.Encode() // the type can be encoded
	two, _ := other.Encode()
	return bytes.Equal(one, two)
}
