// Package namespace runs processes in their own Linux namespaces. The namespaces have no names: they belong to their
// first process, which ends with this process in any case. In a PID namespace, everything in it ends then, too. Mounts
// and interfaces are removed with the last process.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/netns"
)

// The kinds of namespaces, which can be combined.
const (
	Network   = unix.CLONE_NEWNET
	Mounts    = unix.CLONE_NEWNS
	Processes = unix.CLONE_NEWPID
	IPC       = unix.CLONE_NEWIPC
	Hostname  = unix.CLONE_NEWUTS
)

// Namespaces is a group of namespaces.
type Namespaces struct {
	kinds int
	first *process.Process
	file  *os.File // pidfd of first
}

// Start creates namespaces of the given kinds. The command is their first process and should do nothing. In a PID
// namespace it is number 1, which has to reap orphaned children.
func Start(command process.Command, kinds int) (*Namespaces, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("making namespaces: only root may do that: run this as root")
	}
	command.Isolate = uintptr(kinds)
	first, err := process.Start(command)
	if err != nil {
		return nil, fmt.Errorf("making namespaces: %w", err)
	}
	descriptor, err := unix.PidfdOpen(first.PID(), 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the namespaces of process %d: %w", first.PID(), err), first.Stop(0))
	}
	return &Namespaces{kinds: kinds, first: first, file: os.NewFile(uintptr(descriptor), command.Name)}, nil
}

// Stop kills the first process, and with it everything in a PID namespace, and returns when that has ended. It may be
// called again.
func (n *Namespaces) Stop() error {
	err := n.first.Stop(0)
	if closing := n.file.Close(); closing != nil && !errors.Is(closing, os.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}

// Guarding reports whether everything in the namespaces ends with their first process. A process.Command that enters
// such namespaces is Guarded.
func (n *Namespaces) Guarding() bool { return n.kinds&Processes != 0 }

// PID returns the id of the first process, as this process sees it.
func (n *Namespaces) PID() int { return n.first.PID() }

// Done is closed when the first process has ended.
func (n *Namespaces) Done() <-chan struct{} { return n.first.Done() }

// Enter moves the calling thread, and processes that it starts, into the namespaces permanently. The caller has locked
// the thread to its goroutine and never unlocks it.
func (n *Namespaces) Enter() error {
	// A thread that shares its working directory with others cannot have its own mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("entering namespaces: %w", err)
	}
	return n.join(n.kinds)
}

func (n *Namespaces) join(kinds int) error {
	connection, err := n.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("entering the namespaces of process %d: %w", n.PID(), err)
	}
	var joining error
	if err := connection.Control(func(fd uintptr) { joining = unix.Setns(int(fd), kinds) }); err != nil {
		return fmt.Errorf("entering the namespaces of process %d: %w", n.PID(), err)
	}
	if joining != nil {
		return fmt.Errorf("entering the namespaces of process %d: %w", n.PID(), joining)
	}
	return nil
}

// Do calls f in the network namespace: sockets that f creates and interface names that it uses are those of the
// namespace. Goroutines that f starts are not in it. The sockets remain in the namespace.
func (n *Namespaces) Do(f func() error) error {
	return netns.Do(func() error { return n.join(Network) }, f)
}

// Dial connects from within the network namespace. The address has an IP address, not a name.
func (n *Namespaces) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return netns.Dial(ctx, n, network, address)
}

// Listen listens within the network namespace for connections of a stream network ("tcp", "tcp4", "tcp6").
func (n *Namespaces) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return netns.Listen(ctx, n, network, address)
}

// Inside calls f on a thread in all of the namespaces except the PID namespace, which only new processes can enter.
func (n *Namespaces) Inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		err := n.Enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Run runs a command in all of the namespaces until it ends. The command is killed when this process ends.
func (n *Namespaces) Run(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !n.Guarding() {
		command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return n.Inside(command.Run)
}
