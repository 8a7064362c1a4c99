package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
)

// canary is a machine with only a kernel: it shows whether an accelerator runs that kernel.
type canary struct {
	binary, kernel, machineType, cpuModel string
	accelerator                           Accelerator
	timeout                               time.Duration
	jail                                  jail.Jail
}

// upPattern matches what Linux prints when it has finished its own start and either turns to its root file system,
// which a canary does not have, or to the init of an initial RAM file system that is part of the kernel's image. It
// does not match panics for other reasons.
var upPattern = regexp.MustCompile(`VFS: (Cannot open root device|Unable to mount root fs)|Run \S+ as init process|No working init found`)

// machine returns the canary's machine. Its console shows results fast: the kernel prints everything, and ends QEMU
// when it panics.
func (c canary) machine() Machine {
	return Machine{
		Name: "canary", Type: c.machineType, Accelerator: c.accelerator, CPU: CPU{Model: c.cpuModel, Count: 1}, Memory: 512,
		Kernel:   &Kernel{Image: c.kernel, CommandLine: "console=ttyS0 ignore_loglevel panic=-1"},
		NoReboot: true,
	}
}

// send boots the canary. It returns what went wrong with it, "" for nothing; the error says that it could not be run.
func (c canary) send(ctx context.Context) (problem string, err error) {
	args, err := c.machine().Args()
	if err != nil {
		return "", fmt.Errorf("describe canary: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	up := false
	console := &lines{keep: 1, each: func(line string) {
		if upPattern.MatchString(line) {
			up = true
			cancel()
		}
	}}
	complaints := &lines{keep: 3}
	command := exec.CommandContext(bounded, c.binary, args...)
	command.Stdout, command.Stderr = console, complaints
	locked := c.jail
	locked.Paths = append(slices.Clone(locked.Paths), jail.Path{Name: c.kernel})
	end, err := run(command, locked)
	switch {
	case err != nil:
		return "", fmt.Errorf("send canary: %w", err)
	case up:
		return "", nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("send canary: %w", ctx.Err())
	case errors.Is(bounded.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("a canary's kernel was not up after %s; %s", c.timeout, lastWords(console, complaints)), nil
	case killed(end):
		return "", errors.New("send canary: its QEMU was killed, possibly because memory ran out")
	}
	return fmt.Sprintf("a canary's QEMU ended before its kernel was up (%s); %s", end, lastWords(complaints, console)), nil
}

// killed reports whether a process was killed.
func killed(end *os.ProcessState) bool {
	status, ok := end.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// run runs a command until it or its context ends; then it is killed together with all processes that it started.
func run(command *exec.Cmd, locked jail.Jail) (*os.ProcessState, error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	// A process that left the process group may hold the pipes open.
	command.WaitDelay = time.Second
	wait, err := locked.Start(command)
	if err != nil {
		return nil, err
	}
	if err := wait(); command.ProcessState == nil {
		return nil, err
	}
	return command.ProcessState, nil
}

// lastWords quotes the first of the two that has any output.
func lastWords(first, second *lines) string {
	for _, said := range []*lines{first, second} {
		if text := said.String(); text != "" {
			return fmt.Sprintf("the last it said: %q", text)
		}
	}
	return "it said nothing"
}
