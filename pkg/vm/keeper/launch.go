package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// Launch is everything that QEMU is started with. A caller's preparation fills it step by step; the keeper releases
// what there is.
type Launch struct {
	// Machine is the virtual machine, to which Settings.Complete adds the keeper's part.
	Machine qemu.Machine
	// Files are what QEMU inherits, from file descriptor 3 on: the locks, and what it is given.
	Files []*os.File
	// Jail is the sandbox of QEMU. Its user and its root directory are set; the preparation adds what the machine needs.
	Jail jail.Jail
	// Reach is how the guest can be reached. The zero value is for a guest that cannot be.
	Reach Reach
	// Configure is called when QEMU responds, before the guest runs; ctx ends with the time that QEMU has to start. May be
	// nil.
	Configure func(ctx context.Context, monitor *qmp.Client)

	keeper *Keeper
	// handed are those of the files that the keeper itself does not keep open.
	handed []*os.File
	// once are the paths of files that QEMU reads at its start.
	once    []string
	closers []func() error
}

// Reach is how a guest can be reached through its network.
type Reach struct {
	// Address is the guest's.
	Address netip.Addr
	// Sent returns how many packets the guest has sent; nil if that is unknown.
	Sent func() (uint64, error)
	// Dial opens a connection to the guest.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Step is one step of a preparation.
type Step struct {
	// What is done in it; it begins with a verb: "locking disks".
	What string
	// Do does it. The error has its reason, see Because.
	Do func(context.Context) error
}

// Do takes the steps in order, shows each of them in the status, and ends with the first one that fails.
func (l *Launch) Do(ctx context.Context, steps ...Step) error {
	for _, step := range steps {
		l.Tell(step.What)
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.What, err)
		}
	}
	return nil
}

// Tell shows what the preparation does, or waits for, in the status and in the log.
func (l *Launch) Tell(step string) { l.keeper.enter(StatePreparing, step) }

func (k *Keeper) newLaunch() *Launch {
	return &Launch{keeper: k, Jail: jail.Jail{
		User: k.qemuUser(), Directory: k.settings.qemuRoot(), Say: func(text string) { k.log.Warn(text) },
	}}
}

// Close releases everything, in reverse order.
func (l *Launch) Close() error {
	l.removeOnce()
	errs := []error{l.closeHanded()}
	for _, closer := range slices.Backward(l.closers) {
		errs = append(errs, closer())
	}
	l.closers = nil
	return errors.Join(errs...)
}

// OnClose adds what is done after the machine's end.
func (l *Launch) OnClose(closer func() error) { l.closers = append(l.closers, closer) }

// FirstDescriptor is the first file descriptor that a process inherits after standard input, output and error.
const FirstDescriptor = 3

// inherit lets QEMU inherit a file, and returns the file descriptor that it has there.
func (l *Launch) inherit(file *os.File) int {
	l.Files = append(l.Files, file)
	return FirstDescriptor + len(l.Files) - 1
}

// Give lets QEMU inherit a file that the keeper itself does not need, and returns the file descriptor that it has there.
// The launch closes the file.
func (l *Launch) Give(file *os.File) int {
	l.handed = append(l.handed, file)
	return l.inherit(file)
}

// GiveDisk does the same with the result of opening a disk. The error has its reason.
func (l *Launch) GiveDisk(file *os.File, err error) (int, error) {
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return 0, BecauseOfDisk(err)
	}
	return l.Give(file), nil
}

// closeHanded closes what QEMU has inherited: a socket that the keeper kept open would appear to be served after QEMU's
// end.
func (l *Launch) closeHanded() error {
	var errs []error
	for _, file := range l.handed {
		errs = append(errs, file.Close())
	}
	l.handed = nil
	return errors.Join(errs...)
}

// WriteOnce stores a file with secrets that QEMU reads once, at its start. QEMU sees it, and nothing else may read it.
// It is removed as soon as QEMU responds, or when the start fails.
func (l *Launch) WriteOnce(path string, content []byte) error {
	l.once = append(l.once, path)
	l.Jail.Paths = append(l.Jail.Paths, jail.Path{Name: path})
	err := os.WriteFile(path, content, 0o600)
	if user := l.keeper.qemuUser(); err == nil && user != 0 {
		err = os.Chown(path, user, user)
	}
	return BecauseOfDisk(err)
}

func (l *Launch) removeOnce() {
	for _, path := range l.once {
		_ = os.Remove(path)
	}
	l.once = nil
}

// Readable checks that QEMU's user may read the files. Files of the cache are created that way; a file of the host is
// never changed.
func (l *Launch) Readable(paths ...string) error {
	user := l.keeper.qemuUser()
	if user == 0 {
		return nil
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o004 == 0 {
			return fmt.Errorf("QEMU runs as user %d and cannot read %s: make it world-readable (chmod o+r)", user, path)
		}
	}
	return nil
}

// qemuUser is the user that QEMU runs as, 0 if it is the keeper's own: only root can start a program as another user.
func (k *Keeper) qemuUser() int {
	if os.Geteuid() != 0 {
		return 0
	}
	return k.settings.QEMUUser
}

// ServeNetwork serves the guest's network beside the machine, until the machine has ended. If that fails earlier, the
// machine is no longer ready.
func (l *Launch) ServeNetwork(ctx context.Context, serve func(context.Context) error) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(serving); err != nil && serving.Err() == nil {
			l.keeper.log.Error("The guest's network stopped", "error", err)
			l.keeper.board.set(func(s *Status) { s.Network = err.Error() })
		}
	}()
	l.OnClose(func() error { stop(); <-ended; return nil })
}
