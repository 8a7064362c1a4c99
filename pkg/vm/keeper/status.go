package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// State is what the keeper is doing.
type State string

// The States, in order.
const (
	// StatePreparing means that everything is prepared that the machine needs.
	StatePreparing State = "Preparing"
	// StateStarting means that QEMU has been started and does not run the guest yet.
	StateStarting State = "Starting"
	// StateRunning means that the guest runs.
	StateRunning State = "Running"
	// StateHeld means that the keeper was asked to stop and keeps the guest running until it is released.
	StateHeld State = "Held"
	// StatePoweringDown means that the guest was asked to shut down.
	StatePoweringDown State = "PoweringDown"
	// StateQuitting means that the guest did not shut down, and QEMU was ordered to quit.
	StateQuitting State = "Quitting"
	// StateKilling means that QEMU did not quit either, and is killed.
	StateKilling State = "Killing"
	// StateParked means that the guest shut itself down, and that its machine is not started again for now. It comes
	// before StatePreparing, in a keeper that was started after the one that kept the machine.
	StateParked State = "Parked"
	// StateStopped means that the machine has ended.
	StateStopped State = "Stopped"
)

// Status is what a keeper knows of its machine. A Guest may add to it.
type Status struct {
	Name  string    `json:"name"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Step is what the keeper does or waits for.
	Step string `json:"step,omitempty"`
	// Accelerator is kvm or tcg, and AcceleratorReason why.
	Accelerator       string `json:"accelerator,omitempty"`
	AcceleratorReason string `json:"acceleratorReason,omitempty"`
	// Rooted says that QEMU runs as root, with some of its capabilities, because the machine needs that.
	Rooted bool `json:"rooted,omitempty"`
	// PID is QEMU's.
	PID int `json:"pid,omitempty"`
	// Address is the guest's.
	Address string `json:"address,omitempty"`
	// Machine is QEMU's own status, such as "running", or why QEMU gave none.
	Machine string `json:"machine,omitempty"`
	// Answers says whether QEMU responded.
	Answers bool `json:"answers,omitempty"`
	// Network is why the guest can no longer get an address; empty if it can.
	Network string `json:"network,omitempty"`
	// Resets counts the machine's resets. A reboot of the guest is one or more: Linux triggers a reset up to ten times
	// until the machine reacts (arch/x86/kernel/reboot.c, native_machine_emergency_restart), and firmware may reset
	// again.
	Resets int `json:"resets"`
	// Awakened counts the resets by the keeper, of a machine whose guest hung.
	Awakened int `json:"awakened,omitempty"`
	// HeldUntil is when a held machine is powered down at the latest.
	HeldUntil *time.Time `json:"heldUntil,omitempty"`
	// Ready and Live are the results of the probes; Unready says why it is not ready.
	Ready   bool   `json:"ready"`
	Live    bool   `json:"live"`
	Unready string `json:"unready,omitempty"`
}

// board holds the status for concurrent readers.
type board struct {
	mu     sync.Mutex
	status Status
	// changed is closed when the status changes; nil if no reader waits for that.
	changed chan struct{}
}

// known returns the status, and a channel that is closed when it has changed.
func (b *board) known() (Status, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.status, b.changed
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.status
	change(&b.status)
	if b.changed != nil && before != b.status {
		close(b.changed)
		b.changed = nil
	}
}

// Probe asks something in the guest how it is.
type Probe struct {
	// Subject is what is asked, as in a sentence: "kubelet".
	Subject string
	// Ask returns OK, why it is not, or nothing if it cannot be asked.
	Ask func(context.Context) string
}

// OK is the answer to a probe of something healthy.
const OK = "ok"

// Status returns the machine's status, for which it asks QEMU and, while the guest runs, the probes. They are asked in
// parallel, so that a request waits for only the slowest. A machine with a failed probe is not ready; the first of
// these says why.
func (k *Keeper) Status(ctx context.Context, probes ...Probe) Status {
	status, g := k.board.get(), k.running()
	if g == nil {
		return judge(status, "")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answers := make([]string, len(probes))
	var group sync.WaitGroup
	for i, probe := range probes {
		group.Go(func() { answers[i] = probe.Ask(ctx) })
	}
	status.Machine, status.Answers = askMachine(ctx, g.connection())
	group.Wait()
	return judge(status, complaint(probes, answers))
}

// askTimeout is shorter than that of the kubelet's exec probe, so that a probe gets the reason and not a timeout.
const askTimeout = 3 * time.Second

const (
	machineRunning = "running"
	// machineFull is QEMU's status of a machine that it paused because a disk could not be written.
	machineFull = "io-error"
)

// askMachine returns QEMU's status of the machine, and whether QEMU responded.
func askMachine(ctx context.Context, monitor *qmp.Client) (string, bool) {
	status, err := monitor.Status(ctx)
	if err != nil {
		return err.Error(), false
	}
	return status.Status, true
}

// complaint returns the message of the first probe that fails; empty if none does.
func complaint(probes []Probe, answers []string) string {
	for i, answer := range answers {
		if answer != "" && answer != OK {
			return probes[i].Subject + ": " + answer
		}
	}
	return ""
}

// judge decides whether the machine is ready and whether it is live. Machine has been queried, and complaint is what is
// unhealthy in the guest.
//
// It is live while QEMU responds: an unhealthy guest may hold data that others need, and a restart does not free
// a full disk. A machine that has not started yet is live, too, because a download may take longer than a probe waits,
// and so is one that is going down, because the keeper itself bounds that.
func judge(s Status, complaint string) Status {
	s.Live = s.State != StateStopped && (s.State != StateRunning || s.Answers)
	switch {
	case s.State == StatePreparing || s.State == StateStarting:
		s.Unready = "the machine has not been started yet: " + s.Step
	case s.State == StateParked:
		s.Unready = "the machine is parked: " + s.Step
	case s.State == StateStopped:
		s.Unready = "the machine has ended"
	case s.Machine != machineRunning:
		s.Unready = "QEMU: " + s.Machine
	case complaint != "":
		s.Unready = complaint
	case s.Network != "":
		s.Unready = "network: " + s.Network
	default:
		s.Ready = true
	}
	return s
}
