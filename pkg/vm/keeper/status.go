package runner

import (
	"sync"
	"time"
)

// State is what the runner is doing.
type State string

// The States, in order.
const (
	// StatePreparing means that boot data, image, disks and network are being prepared.
	StatePreparing State = "Preparing"
	// StateStarting means that QEMU has been started and does not run the guest yet.
	StateStarting State = "Starting"
	// StateRunning means that the guest runs.
	StateRunning State = "Running"
	// StateHeld means that the runner was told to stop and keeps the guest running until it is released.
	StateHeld State = "Held"
	// StatePoweringDown means that the guest was asked to shut down.
	StatePoweringDown State = "PoweringDown"
	// StateQuitting means that the guest did not shut down, and QEMU was told to quit.
	StateQuitting State = "Quitting"
	// StateKilling means that QEMU did not quit either, and is killed.
	StateKilling State = "Killing"
	// StateStopped means that the machine has ended.
	StateStopped State = "Stopped"
)

// Status is what `runner status` shows.
type Status struct {
	Name  string    `json:"name"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Step is what the runner does or waits for.
	Step string `json:"step,omitempty"`
	// Accelerator is kvm or tcg, and AcceleratorReason why.
	Accelerator       string `json:"accelerator,omitempty"`
	AcceleratorReason string `json:"acceleratorReason,omitempty"`
	// Rooted says that QEMU runs as root, because a share's file system has no extended attributes.
	Rooted bool `json:"rooted,omitempty"`
	// PID is QEMU's.
	PID int `json:"pid,omitempty"`
	// Address is the guest's.
	Address string `json:"address,omitempty"`
	// Machine is QEMU's own status, such as "running", or why QEMU gave none.
	Machine string `json:"machine,omitempty"`
	// Answers says whether QEMU responded.
	Answers bool `json:"answers,omitempty"`
	// Kubelet is "ok" or why the guest's kubelet is not healthy.
	Kubelet string `json:"kubelet,omitempty"`
	// API is "ok" or why a master's API server is not ready.
	API string `json:"api,omitempty"`
	// Network is why the guest can no longer get an address; empty if it can.
	Network string `json:"network,omitempty"`
	// Resets counts the machine's resets. A reboot of the guest is one or more: Linux triggers a reset up to ten times
	// until the machine reacts (arch/x86/kernel/reboot.c, native_machine_emergency_restart), and firmware may reset
	// once more.
	Resets int `json:"resets"`
	// Awakened counts the resets by the runner, of a machine whose guest hung.
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
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// judge decides whether the machine is ready and whether it is live. Machine and Kubelet have been queried.
//
// It is live while QEMU responds: a guest whose kubelet is unhealthy may run a healthy etcd member, and a restart does
// not free a full disk. A machine that has not started yet is live, too, because a download may take longer than a
// probe waits, and so is one that is going down, because the runner itself bounds that.
func judge(s Status) Status {
	s.Live = s.State != StateStopped && (s.State != StateRunning || s.Answers)
	switch {
	case s.State == StatePreparing || s.State == StateStarting:
		s.Unready = "the machine has not been started yet: " + s.Step
	case s.State == StateStopped:
		s.Unready = "the machine has ended"
	case s.Machine != machineRunning:
		s.Unready = "QEMU: " + s.Machine
	case s.Kubelet != "" && s.Kubelet != healthOK:
		s.Unready = "kubelet: " + s.Kubelet
	case s.API != "" && s.API != healthOK:
		s.Unready = "API server: " + s.API
	case s.Network != "":
		s.Unready = "network: " + s.Network
	default:
		s.Ready = true
	}
	return s
}
