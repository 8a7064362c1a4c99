// Package keeper keeps one QEMU for its life: it starts QEMU with everything that a caller has prepared, watches it
// over its monitor, and ends it without losing data. It knows nothing of Kubernetes and of what runs in the guest.
package keeper

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// Settings are what a keeper needs to know, besides the machine that its caller prepares.
type Settings struct {
	// Name is the machine's name.
	Name string
	// Run is the directory for what does not outlive the keeper: sockets.
	Run string
	// QEMU is the program, by name or path.
	QEMU string
	// QEMUUser is the number of the user and group that QEMU runs as. 0 is the keeper's own; a keeper that is not root
	// always uses its own.
	QEMUUser int
	// TerminationLog is the file for the reason of the end; empty for none.
	TerminationLog string
	// Timeouts bound each step.
	Timeouts Timeouts
}

// Timeouts bound each step of a machine's life.
type Timeouts struct {
	// Lock is how long to wait for another machine that uses a disk of this one. A pod is replaced while it still shuts
	// down.
	Lock time.Duration
	// Start is how long QEMU may take until it responds.
	Start time.Duration
	// Boot is how long the guest may take until it writes to a disk or sends a packet. After that it is considered
	// hung, and the machine is reset; 0 never resets it. After each reset the time doubles.
	Boot time.Duration
	// Hold is how long the machine is kept running after it was asked to stop, until it is released; 0 does not wait.
	Hold time.Duration
	// Powerdown is how long the guest may take to shut down.
	Powerdown time.Duration
	// Quit is how long QEMU may take to quit if the guest did not shut down.
	Quit time.Duration
	// Monitor is how long QEMU may not respond to a query while it runs. After that it is considered dead and killed.
	Monitor time.Duration
}

// DefaultTimeouts suit a pod with a grace period of ten minutes.
var DefaultTimeouts = Timeouts{
	Lock: 10 * time.Minute, Start: time.Minute, Boot: 5 * time.Minute, Hold: 0, Powerdown: 4 * time.Minute, Quit: 15 * time.Second, Monitor: 2 * time.Minute,
}

// QEMUUser is the user that QEMU runs as: the one that Debian reserves for it (libvirt-qemu). Neither an image nor a
// host needs to have its name.
const QEMUUser = 64055

// maxUser is the largest user number (user_namespaces(7): 4294967295 means none).
const maxUser = 1<<32 - 2

// maxSocketPath is how long the path of a socket may be, in bytes (unix(7)).
const maxSocketPath = 107

// Validate returns an error that names all missing and invalid settings.
func (s Settings) Validate() error {
	var errs []error
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(s.Name != "", "the name of the machine is missing")
	require(s.Run != "", "the directory of sockets is missing")
	require(s.Timeouts.Hold >= 0 && s.Timeouts.Lock >= 0 && s.Timeouts.Boot >= 0, "the timeouts have to be positive")
	require(len(s.socket()) <= maxSocketPath, "the directory of sockets %s is longer than the path of a socket can be (%d bytes)", s.Run, maxSocketPath)
	require(s.QEMUUser >= 0 && s.QEMUUser <= maxUser, "QEMU's user is %d and has to be between 0 and %d", s.QEMUUser, maxUser)
	require(s.Timeouts.Start > 0 && s.Timeouts.Powerdown > 0 && s.Timeouts.Quit > 0 && s.Timeouts.Monitor > 0,
		"the timeouts have to be more than nothing")
	return errors.Join(errs...)
}

// Complete returns a machine with everything that the keeper adds to it: its name, the sockets of QEMU's monitor and of
// the guest's agent, and that the guest waits until the monitor answers.
func (s Settings) Complete(m qemu.Machine) qemu.Machine {
	m.Name, m.Monitor, m.Agent, m.Paused = s.Name, s.monitor(), s.Agent(), true
	return m
}

// Agent is the path of the socket of the guest agent's port.
func (s Settings) Agent() string { return filepath.Join(s.Run, "agent.sock") }

func (s Settings) socket() string   { return filepath.Join(s.Run, SocketName) }
func (s Settings) monitor() string  { return filepath.Join(s.Run, "qmp.sock") }
func (s Settings) qemuRoot() string { return filepath.Join(s.Run, "root") }
