// Package guest is the agent inside of a microVM. It is process 1 of the guest's kernel: it makes the image's root from the
// machine's disks, runs the image's process in it, and does what the host requests over package agentwire.
//
// The agent stays in the kernel's initial file system and never enters the image's root, whose content is hostile. Other
// processes have nothing but that root.
package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

// patience is how long processes have to end at a shutdown, after SIGTERM and again after SIGKILL.
const patience = 2 * time.Second

// Machine is the guest as its host sees it. It does agentwire.Guest.
type Machine struct {
	*Root
	config  agentwire.Config
	console *console
	reaper  *reaper
	spawn   func(func())
	grown   []string
	// unmount releases the disks at a shutdown.
	unmount func() error

	mu       sync.Mutex
	workload agentwire.Workload
	exitCode *int
	process  *process
	stopping bool
}

// Status returns how far the workload is.
func (m *Machine) Status() agentwire.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var since unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) // it has no errors with this clock
	return agentwire.Status{Workload: m.workload, ExitCode: m.exitCode, Uptime: time.Duration(since.Nano()), Grown: m.grown}
}

// Exec runs a command beside the workload.
func (m *Machine) Exec(ctx context.Context, e agentwire.Exec, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	m.mu.Lock()
	stopping := m.stopping
	m.mu.Unlock()
	if stopping {
		return 0, agentwire.Errorf(agentwire.CodeBusy, "the machine is going down")
	}
	x := &executor{root: m.Root, reaper: m.reaper, spawn: m.spawn, base: base(m.config.Process)}
	return x.run(ctx, e, stdin, stdout, stderr)
}

// base returns what the image says about its processes.
func base(p ociprocess.Process) command {
	return command{environment: p.Environment, directory: p.Directory, user: p.User, makeDirectory: true}
}

// startWorkload starts the image's process, and returns. Its output goes to the console.
func (m *Machine) startWorkload() {
	arguments := m.config.Process.Arguments()
	if len(arguments) == 0 {
		m.console.say("the image has no process to run")
		return
	}
	output, err := m.startWithOutput(arguments)
	if err != nil {
		code := agentwire.ExitNotExecutable
		if because, ok := err.(*cannotRun); ok { //nolint:errorlint // it is not wrapped
			code = because.code
		}
		m.ended(code) // what the console says is true by then
		m.console.say("the image's process cannot be run: %s", err)
		return
	}
	m.spawn(func() {
		defer output.Close() //nolint:errcheck // it was only read
		err := relay(output, m.console, m.process.ended)
		<-m.process.ended
		m.ended(m.process.code)
		m.console.say("the image's process has ended with exit code %d", m.process.code)
		if err != nil && output.SetReadDeadline(time.Time{}) == nil {
			_, _ = io.Copy(m.console, output) // processes that it has left behind
		}
	})
}

// startWithOutput starts the workload, and returns what it writes.
func (m *Machine) startWithOutput(arguments []string) (*os.File, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // it was only read
	output, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close() //nolint:errcheck // the process has its own
	c := base(m.config.Process)
	c.arguments, c.files = arguments, [3]*os.File{null, theirs, theirs}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		err = fmt.Errorf("the machine is going down")
	} else if m.process, err = m.start(m.reaper, c); err == nil {
		m.workload = agentwire.WorkloadRunning
		return output, nil
	}
	_ = output.Close() // there is no process
	return nil, err
}

func (m *Machine) ended(code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workload, m.exitCode = agentwire.WorkloadEnded, &code
}

// Shutdown ends the workload, with its own signal and after the grace by force, then all other processes, and unmounts the
// disks.
func (m *Machine) Shutdown() error {
	m.mu.Lock()
	again, p := m.stopping, m.process
	m.stopping = true
	m.mu.Unlock()
	if again {
		return agentwire.Errorf(agentwire.CodeBusy, "the machine is going down already")
	}
	m.console.say("shutting down")
	if p != nil {
		m.stop(p)
	}
	m.reaper.endAll(patience)
	unix.Sync()
	if err := m.unmount(); err != nil {
		m.console.say("a disk is still in use, and all data is on it: %s", err)
	}
	return nil
}

// stop ends the workload.
func (m *Machine) stop(p *process) {
	number, err := stopSignal(m.config.Process.StopSignal)
	if err != nil {
		m.console.say("%s: SIGTERM is sent", err)
		number = unix.SIGTERM
	}
	p.signal(number, false)
	select {
	case <-p.ended:
	case <-time.After(m.config.Grace):
		m.console.say("the image's process ignores signal %d, and is killed", number)
		p.signal(unix.SIGKILL, true)
		<-p.ended
	}
}

// PowerOff ends the machine.
func (m *Machine) PowerOff() { m.console.powerOff() }
