// Package microvm tests the guest side of microVMs with real, emulated machines: the agent in its initrd, an image as
// squashfs, and disks that grow and survive.
package microvm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

const (
	// answers and ends are for emulation on a machine whose cores are shared.
	answers = 3 * time.Minute
	ends    = time.Minute
	program = "qemu-system-x86_64"
	mib     = 1 << 20
)

// machine is a microVM and its files.
type machine struct {
	directory string
	config    agentwire.Config
	command   *exec.Cmd
	console   *transcript
	ended     chan struct{}
	result    error
}

// newMachine makes the files of a machine that runs a shell command of the test's image.
func newMachine(t *testing.T, command string) *machine {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "microvm") //nolint:usetesting // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	m := &machine{directory: directory, config: agentwire.Config{
		Name: "small",
		Process: ociprocess.Process{
			Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{command}, Directory: "/srv/new", User: "web",
			Environment: []string{"GREETING=hello", "OTHER=image"},
		},
		Network: &agentwire.Network{
			Address: netip.MustParsePrefix("100.96.0.2/30"), Gateway: netip.MustParseAddr("100.96.0.1"), DNS: netip.MustParseAddr("100.96.0.1"), MTU: 1400,
		},
	}}
	if err := ociimage.Pack(t.Context(), []ociimage.Layer{image(t)}, ociimage.DefaultLimits, m.file("root")); err != nil {
		t.Fatal(err)
	}
	m.grow(t, 64*mib)
	for _, name := range []string{agentwire.DiskOverlay, agentwire.DiskStorage} {
		if err := disk.Format(t.Context(), m.file(name), name); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) file(name string) string { return filepath.Join(m.directory, name) }

// grow makes the files of both disks this large.
func (m *machine) grow(t *testing.T, size int64) {
	t.Helper()
	for _, name := range []string{agentwire.DiskOverlay, agentwire.DiskStorage} {
		if err := disk.Create(m.file(name), size); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts QEMU. It is ended with the test.
func (m *machine) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(m.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.file("config"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	arguments, err := m.qemu(t).Args()
	if err != nil {
		t.Fatal(err)
	}
	m.command, m.console, m.ended = exec.Command(program, arguments...), &transcript{}, make(chan struct{})
	m.command.Stdout, m.command.Stderr = m.console, m.console
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		m.result = m.command.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			t.Logf("the console of %s:\n%s", m.config.Name, m.console)
		}
	})
}

func (m *machine) qemu(t *testing.T) qemu.Machine {
	t.Helper()
	q := qemu.Machine{
		Name: m.config.Name, Accelerator: qemu.TCG, CPU: qemu.CPU{Count: 1}, Memory: 256, NoReboot: true,
		Kernel: &qemu.Kernel{
			Image: built(t, "vmlinuz"), Initrd: built(t, "micro.cpio.gz"),
			CommandLine: "console=ttyS0 quiet panic=-1 nokaslr tsc=reliable no_timer_check",
		},
		FirmwareConfig: []qemu.FirmwareConfig{{Name: agentwire.ConfigName, File: m.file("config")}},
		Networks:       []qemu.Network{{MAC: "02:53:4d:00:00:02", User: &qemu.UserNetwork{Isolated: true}}},
		Agent:          m.file("agent.sock"), AgentPort: agentwire.Port,
	}
	for _, name := range []string{agentwire.DiskStorage, agentwire.DiskRoot, agentwire.DiskOverlay} { // in any order
		q.Disks = append(q.Disks, qemu.Disk{Serial: name, Path: m.file(name), ReadOnly: name == agentwire.DiskRoot})
	}
	return q
}

// kill ends QEMU at once.
func (m *machine) kill() {
	_ = m.command.Process.Kill()
	<-m.ended
}

// awaitEnd waits until QEMU has ended by itself.
func (m *machine) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-m.ended:
		if m.result != nil {
			t.Fatalf("QEMU ends with %v", m.result)
		}
	case <-time.After(ends):
		t.Fatal("the machine does not power off")
	}
}

// dial connects to the agent's port.
func (m *machine) dial(t *testing.T) net.Conn {
	t.Helper()
	for end := time.Now().Add(ends); ; time.Sleep(10 * time.Millisecond) {
		connection, err := net.Dial("unix", m.file("agent.sock"))
		if err == nil {
			return connection
		}
		select {
		case <-m.ended:
			t.Fatalf("QEMU has ended: %v\n%s", m.result, m.console)
		default:
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// connect waits until the agent answers.
func (m *machine) connect(t *testing.T) *agentwire.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answers)
	defer cancel()
	c, err := agentwire.Connect(ctx, m.dial(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// built returns a file that "make tools" builds.
func built(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", ".tools", "guest", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: run make tools", err)
	}
	return path
}

// transcript is what a machine writes to its console.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// await waits until a text is on the console.
func (m *machine) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the console has "+text, func() bool { return strings.Contains(m.console.String(), text) })
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll.Eventually(t, ends, 20*time.Millisecond, func() error {
		if !condition() {
			return errors.New("it is not so that " + what)
		}
		return nil
	})
}

// step runs a part of a test, and prints how long it took.
func step(t *testing.T, name string, do func(*testing.T)) {
	t.Helper()
	begin := time.Now()
	if !t.Run(name, do) {
		t.FailNow()
	}
	t.Logf("%6.2fs  %s", time.Since(begin).Seconds(), name)
}

// run runs a command and returns its exit code and output.
func run(t *testing.T, c *agentwire.Client, e agentwire.Exec, stdin io.Reader) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), ends)
	defer cancel()
	code, err := c.Exec(ctx, e, stdin, &out, &errs)
	if err != nil {
		t.Fatalf("%q: %v", e.Command, err)
	}
	return code, out.String(), errs.String()
}

// sh runs a command of the shell as root, which must succeed, and returns its output.
func sh(t *testing.T, c *agentwire.Client, command string) string {
	t.Helper()
	code, stdout, stderr := run(t, c, agentwire.Exec{Command: []string{"sh", "-c", command}, User: "root"}, nil)
	if code != 0 {
		t.Fatalf("%q ends with %d: %s", command, code, stderr)
	}
	return strings.TrimSpace(stdout)
}
