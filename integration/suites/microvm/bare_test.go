package microvm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

// bare is a QEMU with the arguments that the server gives to its own, and with QEMU's user network.
type bare struct {
	directory string
	port      uint16
	arguments []string
}

// inherited matches what QEMU inherits from its keeper, and fileSet one of the files, whose path is beside it.
var (
	inherited = regexp.MustCompile(`\bfd=\d+`)
	fileSet   = regexp.MustCompile(`^fd=\d+,set=(\d+),opaque=(.*)$`)
)

// newBare returns a bare QEMU like that of a machine that runs, with its own disks.
func newBare(b testing.TB, like int) *bare {
	b.Helper()
	port, err := ocifixture.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	directory, err := os.MkdirTemp("/tmp", "bare") //nolint:usetesting // paths of sockets are short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(directory) })
	q := &bare{directory: directory, port: port}
	for _, name := range []string{agentwire.DiskOverlay, agentwire.DiskStorage} {
		path := q.file(name + ".raw")
		if err := disk.Create(path, 1<<30); err != nil {
			b.Fatal(err)
		}
		if err := disk.Format(b.Context(), path, name); err != nil {
			b.Fatal(err)
		}
	}
	config := agentwire.Config{
		Name: "bare", Process: ociprocess.Process{
			Entrypoint: []string{"/bin/httpd"}, Command: []string{"-f", "-p", fmt.Sprint(ocifixture.WebPort), "-h", "/srv"}, Directory: "/srv", Environment: []string{"PATH=/bin"},
		},
		// Those of QEMU's user network.
		Network: &agentwire.Network{
			Address: netip.MustParsePrefix("10.0.2.15/24"), Gateway: netip.MustParseAddr("10.0.2.2"), DNS: netip.MustParseAddr("10.0.2.3"), MTU: 1500,
		},
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(q.file("config.json"), text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", like))
	if err != nil {
		b.Fatal(err)
	}
	q.arguments = q.own(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:])
	return q
}

func (q *bare) file(name string) string { return filepath.Join(q.directory, name) }

// own returns arguments with which QEMU opens files and sockets itself, and waits for nothing.
func (q *bare) own(arguments []string) (own []string) {
	opens := strings.NewReplacer()
	for _, a := range arguments {
		file := fileSet.FindStringSubmatch(a)
		switch {
		case file != nil:
			path := file[2]
			if filepath.Ext(path) == ".raw" { // a disk, and not the image
				path = q.file(filepath.Base(path))
			}
			opens = strings.NewReplacer("/dev/fdset/"+file[1]+",", path+",")
		case a == "-S", a == "-add-fd":
		case strings.HasPrefix(a, "socket,id=monitor,"):
			own = append(own, inherited.ReplaceAllLiteralString(a, "path="+q.file("qmp.sock")))
		case strings.HasPrefix(a, "socket,id=agent,"):
			own = append(own, inherited.ReplaceAllLiteralString(a, "path="+q.file("agent.sock")))
		case strings.HasPrefix(a, "stream,id=net0,"):
			own = append(own, fmt.Sprintf("user,id=net0,hostfwd=tcp:127.0.0.1:%d-:%d", q.port, ocifixture.WebPort))
		case strings.HasPrefix(a, "name="+agentwire.ConfigName+","):
			own = append(own, "name="+agentwire.ConfigName+",file="+q.file("config.json"))
		default:
			own = append(own, opens.Replace(a))
		}
	}
	return own
}

// start starts QEMU, and returns what shuts it down.
func (q *bare) start(b testing.TB) (stop func()) {
	b.Helper()
	command := exec.Command(program, q.arguments...)
	console := &transcript{}
	command.Stdout, command.Stderr = console, console
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	b.Cleanup(func() { _ = command.Process.Kill(); <-ended })
	return func() {
		q.agent(b, func(ctx context.Context, c *agentwire.Client) error { return c.Shutdown(ctx) })
		select {
		case <-ended:
		case <-time.After(ends):
			b.Fatalf("the bare machine does not end: %s", console)
		}
	}
}

// agent talks to the agent in the guest.
func (q *bare) agent(b testing.TB, talk func(context.Context, *agentwire.Client) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), answers)
	defer cancel()
	connection, err := net.Dial("unix", q.file("agent.sock"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := agentwire.Connect(ctx, connection)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := talk(ctx, c); err != nil {
		b.Fatal(err)
	}
}
