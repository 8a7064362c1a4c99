// Package live_test changes real machines while they run. It tests package qmp with a real QEMU and, where it needs
// one, the emulated tiny guest of integration/images/guestimage.
package live_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// patience is the timeout for emulated guests on few cores.
const patience = time.Minute

// running bounds the number of concurrent machines. With more machines than cores, timeouts would be random.
var running = make(chan struct{}, 2)

// guest is a machine with a monitor and a console.
type guest struct {
	*qmp.Client
	path    string // of the monitor
	command *exec.Cmd
	keys    io.WriteCloser
	ended   chan struct{}

	mu      sync.Mutex
	console []string // lines
	errors  strings.Builder
}

// kernelArguments are the arguments of all guests. On a busy host Linux does not see the emulated timer tick in time
// and repeatedly panics before its console works ("8254 timer not connected to IO-APIC"). no_timer_check skips
// that test.
const kernelArguments = "console=ttyS0 quiet nokaslr panic=-1 no_timer_check"

// tiny returns a machine with the tiny guest.
func tiny(t *testing.T, more ...string) qemu.Machine {
	t.Helper()
	files := filepath.Join("..", "..", "..", ".tools", "guest")
	kernel := &qemu.Kernel{
		Image: filepath.Join(files, "vmlinuz"), Initrd: filepath.Join(files, "tiny.cpio.gz"),
		CommandLine: strings.Join(append([]string{kernelArguments}, more...), " "),
	}
	for _, file := range []string{kernel.Image, kernel.Initrd} {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("%v: run make tools", err)
		}
	}
	m := bare()
	m.Kernel = kernel
	return m
}

// bare returns a machine without an operating system.
func bare() qemu.Machine {
	return qemu.Machine{Name: "live", Accelerator: qemu.TCG, CPU: qemu.CPU{Count: 1, Max: 4}, Memory: 256}
}

// start starts a machine, paused, with a monitor. It ends with the test.
func start(t *testing.T, m qemu.Machine, options ...qmp.Option) *guest {
	t.Helper()
	running <- struct{}{}
	t.Cleanup(func() { <-running })
	dir, err := os.MkdirTemp("", "live") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m.Monitor, m.Paused = filepath.Join(dir, "monitor"), true
	args, err := m.Args()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{path: m.Monitor, command: exec.Command("qemu-system-x86_64", args...), ended: make(chan struct{})}
	g.run(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if g.Client, err = qmp.Dial(ctx, g.path, options...); err != nil {
		t.Fatalf("%v\n%s", err, &g.errors)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run starts QEMU from a thread that waits for its end. QEMU is killed when the thread ends for any reason.
func (g *guest) run(t *testing.T) {
	t.Helper()
	var err error
	if g.keys, err = g.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, lines := io.Pipe()
	g.command.Stdout, g.command.Stderr = lines, &g.errors
	g.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := g.command.Start()
		if started <- err; err == nil {
			_ = g.command.Wait() // its state is kept in the command
			lines.Close()
			close(g.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	go g.listen(output)
	t.Cleanup(func() {
		g.signal(syscall.SIGKILL)
		<-g.ended
		if t.Failed() {
			g.mu.Lock()
			defer g.mu.Unlock()
			t.Logf("QEMU ended with %s\n%s\nconsole:\n%s", g.command.ProcessState, &g.errors, strings.Join(g.console, "\n"))
		}
	})
}

// signal ignores errors because QEMU may have ended.
func (g *guest) signal(signal os.Signal) { _ = g.command.Process.Signal(signal) }

// listen keeps the lines of the guest's console.
func (g *guest) listen(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		g.mu.Lock()
		g.console = append(g.console, strings.TrimRight(lines.Text(), "\r"))
		g.mu.Unlock()
	}
}

// said returns the number of lines on the console.
func (g *guest) said() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.console)
}

// expect waits for a matching line after the first lines and returns the match of its first group.
func (g *guest) expect(t *testing.T, after int, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	found := ""
	g.await(t, "the guest says "+pattern, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, line := range g.console[after:] {
			if match := expression.FindStringSubmatch(line); match != nil {
				found = match[len(match)-1]
				return true
			}
		}
		return false
	})
	return found
}

// await waits for a condition while QEMU lives.
func (g *guest) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-g.ended:
			t.Fatalf("waiting until %s: QEMU has ended", what)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: it does not", what)
		}
	}
}

// boot starts the guest and waits until it is ready.
func (g *guest) boot(t *testing.T) {
	t.Helper()
	after := g.said()
	do(t, g.Cont(t.Context()))
	g.expect(t, after, "tiny: ready")
}

// tell types a line.
func (g *guest) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(g.keys, line); err != nil {
		t.Fatal(err)
	}
}

// end waits for QEMU's end and returns its exit status, -1 after a signal.
func (g *guest) end(t *testing.T) int {
	t.Helper()
	select {
	case <-g.ended:
	case <-time.After(patience):
		t.Fatal("QEMU does not end")
	}
	<-g.Done()
	return g.command.ProcessState.ExitCode()
}

// next returns the next event, with its data in T.
func next[T any](t *testing.T, events *qmp.Subscription, name string) T {
	t.Helper()
	var data T
	select {
	case event, open := <-events.Events():
		if !open || event.Name != name {
			t.Fatalf("the next event is %s %s (%t); want %s", event.Name, event.Data, open, name)
		}
		if len(event.Data) > 0 {
			do(t, event.Decode(&data))
		}
	case <-time.After(patience):
		t.Fatalf("there is no event %s", name)
	}
	return data
}

// none checks that the connection ended without a further event.
func none(t *testing.T, events *qmp.Subscription) {
	t.Helper()
	for event := range events.Events() {
		t.Errorf("there is a further event %s %s", event.Name, event.Data)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks that the error is the wanted one.
func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: the error is %v; want %v", what, err, want)
	}
}

// refused checks that QEMU rejected a command, and with which message.
func refused(t *testing.T, what string, err error, says string) {
	t.Helper()
	var refusal *qmp.CommandError
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Description, says) {
		t.Errorf("%s: the error is %v; want a CommandError that says %q", what, err, says)
	}
}
