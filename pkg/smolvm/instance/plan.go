// Package instance is one running machine of smolvm's API: the process that keeps its QEMU, carries its packets and is
// the one client of the agent in its guest. The process outlives the server that started it; other processes find it by
// its control socket alone.
package instance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/scope"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// Plan is everything that the process needs to know of its machine. It is the content of the file PlanName.
type Plan struct {
	// Version is that of this format.
	Version int    `json:"version"`
	Name    string `json:"name"`
	// Directory holds the disks and the files of the machine, and Run its sockets.
	Directory string `json:"directory"`
	Run       string `json:"run"`
	CPUs      int    `json:"cpus"`
	// MemoryMB is in MiB.
	MemoryMB int64 `json:"memoryMb"`
	// Image is the digest of an image that is in the cache in the directory Images.
	Image  string `json:"image"`
	Images string `json:"images"`
	// Process replaces parts of the image's.
	Process ociprocess.Process `json:"process"`
	// Network is nil for a machine without a network card.
	Network *Network `json:"network,omitempty"`
	Host    Host     `json:"host"`
}

// Network is a machine's.
type Network struct {
	// Ports are published at the address Publish.
	Ports   []api.Port `json:"ports,omitempty"`
	Publish netip.Addr `json:"publish"`
	// Policy says what the guest may reach.
	Policy egress.Policy `json:"policy"`
	// Resolvers answer the guest's queries for names.
	Resolvers []netip.AddrPort `json:"resolvers,omitempty"`
}

// Host is what machines of one host have in common.
type Host struct {
	// QEMU is the program, by name or path, and QEMUUser the number of its user; see keeper.Settings.
	QEMU     string `json:"qemu"`
	QEMUUser int    `json:"qemuUser"`
	// Kernel and Initrd are the guest's, as paths. The initrd holds the agent.
	Kernel string `json:"kernel"`
	Initrd string `json:"initrd"`
	// Acceleration is auto, kvm or tcg, and AllowEmulation allows auto to choose tcg.
	Acceleration   qemu.Mode `json:"acceleration"`
	AllowEmulation bool      `json:"allowEmulation"`
	// Proved is a directory for what was proved of KVM.
	Proved string `json:"proved,omitempty"`
	// Ready is how long the guest may take until its agent answers; 0 means ReadyKVM or ReadyTCG.
	Ready time.Duration `json:"ready,omitempty"`
	// CgroupParent is the cgroup below which each machine has one of its own, in the hierarchies at CgroupRoot. Empty: a
	// machine stays in the cgroup of the server.
	CgroupParent string `json:"cgroupParent,omitempty"`
	CgroupRoot   string `json:"cgroupRoot,omitempty"`
}

// How long a guest may take until its agent answers.
const (
	ReadyKVM = 30 * time.Second
	ReadyTCG = 3 * time.Minute
)

// Names of files in the directory of a machine.
const (
	// PlanName is the plan.
	PlanName = "keeper.json"
	// OverlayName and StorageName are raw images with ext4.
	OverlayName = "overlay.raw"
	StorageName = "storage.raw"
	// ConsoleName is what the guest printed, with what is older in files of the same name with .1 and .2 appended.
	ConsoleName = "console.log"
	// LogName is the log of the keeper and of QEMU.
	LogName = "keeper.log"
	// EndName says how the machine ended the last time.
	EndName = "end.json"
)

const planVersion = 1

// Encode returns the content of the file.
func (p Plan) Encode() ([]byte, error) {
	p.Version = planVersion
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil && len(text) > maxPlan {
		err = fmt.Errorf("the machine's plan has %d bytes, and may have %d", len(text), maxPlan)
	}
	return text, err
}

// maxPlan bounds the size of a plan in bytes.
const maxPlan = 4 << 20

// ReadPlan reads the plan in a machine's directory.
func ReadPlan(directory string) (Plan, error) {
	path := filepath.Join(directory, PlanName)
	text, err := ownfile.Read(path, maxPlan)
	if err != nil {
		return Plan{}, fmt.Errorf("reading the machine's plan: %w", err)
	}
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return Plan{}, fmt.Errorf("reading the machine's plan %s: %w", path, err)
	}
	if p.Version != planVersion || p.Directory != directory {
		return Plan{}, fmt.Errorf("the plan %s is version %d for the directory %s, and has to be version %d for its own directory", path, p.Version, p.Directory, planVersion)
	}
	return p, nil
}

// settings are those of the keeper.
func (p Plan) settings() keeper.Settings {
	return keeper.Settings{
		Name: p.Name, Run: p.Run, QEMU: p.Host.QEMU, QEMUUser: p.Host.QEMUUser,
		Timeouts: keeper.Timeouts{
			// The server has made sure that no other process has the machine, but it may look whether this one has it.
			Lock:  5 * time.Second,
			Start: time.Minute, Powerdown: 15 * time.Second, Quit: 5 * time.Second, Monitor: 2 * time.Minute,
		},
	}
}

// beside is how much memory, in bytes, a machine may use besides its guest's: QEMU's own, the keeper's and its network's.
const beside = 512 << 20

// translated is how much memory QEMU may use for translated code under emulation (tcg/region.c: 1 GiB at most).
const translated = 1 << 30

// maxThreads bounds the threads and processes of a machine.
const maxThreads = 4096

// enter moves this process into its own cgroup.
func (p Plan) enter() error {
	if p.Host.CgroupParent == "" {
		return nil
	}
	memory := p.MemoryMB<<20 + beside
	if p.Host.AllowEmulation {
		memory += translated
	}
	return scope.Enter(cmp.Or(p.Host.CgroupRoot, scope.Root), p.Host.CgroupParent, filepath.Base(p.Directory), scope.Limits{Memory: memory, Processes: maxThreads})
}

// ready is how long the guest may take until its agent answers.
func (h Host) ready(a qemu.Accelerator) time.Duration {
	switch {
	case h.Ready > 0:
		return h.Ready
	case a == qemu.KVM:
		return ReadyKVM
	}
	return ReadyTCG
}

// End is how a machine ended, or why it was not started.
type End struct {
	// Code is empty if nothing went wrong.
	Code api.Code `json:"code,omitempty"`
	// Reason and Message are the keeper's.
	Reason  keeper.Reason `json:"reason"`
	Message string        `json:"message"`
	// Ready says that the guest's agent had answered before.
	Ready bool `json:"ready"`
	// Signal says that the machine was shut down because its process got a signal.
	Signal bool      `json:"signal,omitempty"`
	At     time.Time `json:"at"`
}

// ReadEnd reads how the machine in a directory ended the last time. The error is fs.ErrNotExist if that was not stored:
// it never ran, it runs, or its keeper was killed.
func ReadEnd(directory string) (End, error) {
	text, err := ownfile.Read(filepath.Join(directory, EndName), maxPlan)
	if err != nil {
		return End{}, err
	}
	var e End
	if err := json.Unmarshal(text, &e); err != nil {
		return End{}, fmt.Errorf("reading how the machine ended: %w", err)
	}
	return e, nil
}

// ErrNotReady says that the guest's agent does not answer.
var ErrNotReady = errors.New("the guest's agent does not answer")
