package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
)

// guest is a running QEMU.
type guest struct {
	command   *exec.Cmd
	errors    *lastLines
	reach     Reach
	heartbeat heartbeat // only for the goroutine that attends to the guest
	exited    chan struct{}
	err       error // how the process ended; valid once exited is closed
	// company are the goroutines that run beside the guest.
	company sync.WaitGroup

	attention
}

// spawn starts QEMU. QEMU inherits files from number 3 on: its disks, and the locks, so that a disk stays locked while
// QEMU lives, even if the keeper has ended.
func spawn(binary string, arguments []string, files []*os.File, locked jail.Jail, console *console, log io.Writer) (*guest, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, Failf(ReasonQEMUMissing, "finding QEMU: %w; the runner's image has to hold it", err)
	}
	g := &guest{exited: make(chan struct{}), errors: &lastLines{log: log}}
	g.attended, g.stopping = make(chan struct{}), make(chan struct{})
	g.command = exec.Command(path, arguments...)
	g.command.ExtraFiles = files
	// A process that inherited QEMU's output must not hide QEMU's end.
	g.command.WaitDelay = time.Second
	g.command.Stdout, g.command.Stderr = console, g.errors
	// In its own process group, QEMU does not receive the Ctrl-C of a terminal; a killed keeper takes QEMU with it.
	g.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	keys, input, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("connecting the console: %w", err)
	}
	g.command.Stdin = keys
	err = g.start(locked)
	_ = keys.Close()
	if err != nil {
		return nil, errors.Join(Failf(ReasonQEMURefused, "starting %s: %w", path, err), input.Close())
	}
	console.connect(input)
	return g, nil
}

func (g *guest) start(locked jail.Jail) error {
	wait, err := locked.Start(g.command)
	if err != nil {
		return err
	}
	go func() {
		g.err = wait()
		close(g.exited)
	}()
	return nil
}

// lastWords returns the last messages of QEMU, and how it ended.
func (g *guest) lastWords() string {
	how := "exit status 0"
	if g.err != nil {
		how = g.err.Error()
	}
	if said := g.errors.String(); said != "" {
		return said + " (" + how + ")"
	}
	return how
}

// kill kills QEMU and waits for its end.
func (g *guest) kill() {
	if !g.ended() {
		// The process group is QEMU's own; it has no other members that matter.
		_ = syscall.Kill(-g.command.Process.Pid, syscall.SIGKILL)
	}
	<-g.exited
}

func (g *guest) ended() bool {
	select {
	case <-g.exited:
		return true
	default:
		return false
	}
}

// lastLines passes QEMU's messages to the log and keeps the last ones for the reason of its end.
type lastLines struct {
	log  io.Writer
	kept []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	l.kept = l.kept[max(0, len(l.kept)-2048):]
	return l.log.Write(p)
}

// String returns the last lines as one. It may be called only after QEMU's end.
func (l *lastLines) String() string {
	var lines []string
	scanner := bufio.NewScanner(strings.NewReader(string(l.kept)))
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
