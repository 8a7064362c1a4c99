package microvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/scope"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// Processes runs each machine in its own process.
type Processes struct {
	// Program and Arguments are the command of a machine's process; the machine's directory is appended.
	Program   string
	Arguments []string
	// Run is the directory for sockets, as in Settings.
	Run string
	// CgroupParent and CgroupRoot are as in instance.Host.
	CgroupParent, CgroupRoot string
}

// Start starts the process in its own session, so that neither the server's end nor a terminal reaches it.
func (p Processes) Start(directory string, lock *disk.Lock) (<-chan struct{}, error) {
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = nothing.Close() }()
	// What the process says before it has opened its log ends here.
	words, err := os.OpenFile(filepath.Join(directory, instance.LogName), os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = words.Close() }()
	command := exec.Command(p.Program, slices.Concat(p.Arguments, []string{fmt.Sprintf("--lock=%d", keeper.FirstDescriptor), directory})...)
	command.ExtraFiles = []*os.File{lock.File()}
	command.Stdin, command.Stdout, command.Stderr = nothing, words, words
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("running %s: %w", p.Program, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // how the machine ended is in its directory
	}()
	return ended, nil
}

// Reach returns the client of a machine's process.
func (p Processes) Reach(directory string) instance.Client {
	return instance.Client{Socket: filepath.Join(p.Run, "m", filepath.Base(directory), keeper.SocketName)}
}

// Status asks the process.
func (p Processes) Status(ctx context.Context, directory string) (instance.Status, error) {
	return p.Reach(directory).Status(ctx)
}

// Stop tells the process to shut the machine down.
func (p Processes) Stop(ctx context.Context, directory string) error {
	return p.Reach(directory).Stop(ctx)
}

// Kill kills the process and QEMU.
func (p Processes) Kill(ctx context.Context, directory string) error {
	return instance.Kill(ctx, directory)
}

// Alive reports whether the machine has a process.
func (p Processes) Alive(directory string) (bool, error) { return instance.Claimed(directory) }

// cleanFor is how long a cgroup may take to become empty: a process closes its files before it leaves its cgroup.
const cleanFor = time.Second

// Clean removes the sockets and the cgroup of a process that has ended.
func (p Processes) Clean(directory string) error {
	err := os.RemoveAll(filepath.Dir(p.Reach(directory).Socket))
	for begin := time.Now(); p.CgroupParent != ""; time.Sleep(cleanFor / 20) {
		busy := scope.Remove(cmp.Or(p.CgroupRoot, scope.Root), p.CgroupParent, filepath.Base(directory))
		if busy == nil || time.Since(begin) > cleanFor {
			return errors.Join(err, busy)
		}
	}
	return err
}
