package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// bootCases are the part boot: what only a target that boots machines can show. Each gets a client and the names of
// machines from the target.
var bootCases = map[string]func(t *testing.T, target Target){
	"a start runs the machine, twice is once":            startTwice,
	"a stop ends the machine, twice is once":             stopTwice,
	"a command has output, exit code, env and workdir":   runCommands,
	"a command's output comes while it runs":             streamCommand,
	"a command starts a machine that is stopped":         wakeByCommand,
	"a file is written and read":                         moveFile,
	"the console has lines":                              readConsole,
	"a disk that has grown is larger in the guest":       growDisk,
	"files outlive a stop":                               keepFiles,
	"the image's process answers after a start":          answerAfterStart,
	"the image's process answers after a command":        answerAfterCommand,
	"the image's process answers after a kill":           answerAfterKill,
	"a port that is taken is a conflict":                 portTaken,
	"a VMM that is killed leaves a stopped machine":      killed,
	"a machine that runs is deleted with its process":    deleteRunning,
	"a machine without network has no route":             withoutNetwork,
	"a policy of CIDRs refuses others":                   policy,
	"an image that cannot be pulled leaves no process":   badImage,
	"a packed machine boots":                             bootArtifact,
	"a restart of the server keeps machines and records": restartServer,
}

// short are the cases that run without -long under emulation. integration/suites/microvm and pkg/smolvm/microvm test what
// the others do in parts.
var short = []string{
	"a command has output, exit code, env and workdir", "the image's process answers after a kill", "a port that is taken is a conflict",
	"a restart of the server keeps machines and records", "a packed machine boots",
}

// TestBoot runs the part boot with every target that boots.
func TestBoot(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		if !target.Boots {
			fmt.Printf("LEFT OUT: part boot of %s: it boots no machines\n", target.Kind)
			return
		}
		for name, test := range bootCases {
			if target.Kind == kindQEMU && !*long && !slices.Contains(short, name) {
				continue
			}
			t.Run(name, func(t *testing.T) { test(t, target) })
		}
	})
}

// guest is a machine in a test.
type guest struct {
	t      *testing.T
	target Target
	client *api.Client
	name   string
}

// guest creates a machine of the image with a shell, unless the change says otherwise.
func (target Target) guest(t *testing.T, change func(*api.CreateRequest)) guest {
	t.Helper()
	g := guest{t: t, target: target, client: target.client(t), name: target.newName(t)}
	memory, size := int64(256), int64(2)
	request := api.CreateRequest{Name: g.name, Image: target.Shell, MemoryMB: &memory, StorageGB: &size, OverlayGB: &size, Cmd: []string{"sleep", "1000000"}}
	if change != nil {
		change(&request)
	}
	if _, err := g.client.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return g
}

// web creates a machine whose process answers at a port of the host, which is returned.
func (target Target) web(t *testing.T) (g guest, port uint16) {
	t.Helper()
	port = freePort(t)
	return target.guest(t, func(r *api.CreateRequest) {
		r.Image, r.Cmd, r.Network, r.Ports = target.Web, nil, true, []api.Port{{Host: port, Guest: 80}}
	}), port
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

func (g guest) start() api.Machine {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), g.target.Patience)
	defer cancel()
	m, err := g.client.Start(ctx, g.name, api.StartRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	if m.State != api.StateRunning || m.PID <= 1 {
		g.t.Fatalf("after its start the machine is %s with process %d", m.State, m.PID)
	}
	return m
}

func (g guest) stop() {
	g.t.Helper()
	m, err := g.client.Stop(g.t.Context(), g.name)
	if err != nil || m.State != api.StateStopped || m.PID != 0 {
		g.t.Fatalf("after its stop the machine is %s with process %d: %v", m.State, m.PID, err)
	}
}

// exec runs a command, and the machine if need be.
func (g guest) exec(r api.ExecRequest) api.ExecResponse {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), g.target.Patience)
	defer cancel()
	got, err := g.client.Exec(ctx, g.name, r)
	if err != nil {
		g.t.Fatalf("running %q: %v", r.Command, err)
	}
	return got
}

// shell runs a line of the shell and returns its output.
func (g guest) shell(line string) string {
	g.t.Helper()
	got := g.exec(api.ExecRequest{Command: []string{"sh", "-c", line}})
	if got.ExitCode != 0 {
		g.t.Fatalf("%s: exit code %d, %s", line, got.ExitCode, got.Stderr)
	}
	return strings.TrimSpace(got.Stdout)
}

// awaitState waits until the machine is in a state.
func (g guest) awaitState(want api.State, within time.Duration) {
	g.t.Helper()
	poll.Eventually(g.t, within, 100*time.Millisecond, func() error {
		m, err := g.client.Get(g.t.Context(), g.name)
		if err == nil && m.State != want {
			err = fmt.Errorf("the machine is %s and not %s", m.State, want)
		}
		return err
	})
}

// awaitAnswer waits until a port of the host answers HTTP.
func (g guest) awaitAnswer(port uint16) {
	g.t.Helper()
	short := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	poll.Eventually(g.t, g.target.Patience, 100*time.Millisecond, func() error {
		answer, err := short.Get(fmt.Sprintf("http://%s/", net.JoinHostPort(g.target.Host, fmt.Sprint(port))))
		if err != nil {
			return fmt.Errorf("port %d does not answer: %w", port, err)
		}
		return answer.Body.Close()
	})
}

// alive reports whether a process lives. The target's processes are seen from here.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// A process that has ended stays until its parent looks: where the server has no init, it may never do so.
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// kill ends the machine's VMM as the kernel would when memory is short.
func (g guest) kill() {
	g.t.Helper()
	m, err := g.client.Get(g.t.Context(), g.name)
	if err != nil || m.PID <= 1 {
		g.t.Fatalf("the machine has process %d: %v", m.PID, err)
	}
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		g.t.Fatal(err)
	}
}

func restartServer(t *testing.T, target Target) {
	t.Helper()
	if target.Restart == nil {
		t.Fatal("the target has no function that restarts it")
	}
	running, created := target.guest(t, nil), target.guest(t, nil)
	before := running.start()
	running.shell("echo kept >/kept")
	target.Restart(t)
	after, err := running.client.Get(t.Context(), running.name)
	if err != nil || after.State != api.StateRunning || after.PID != before.PID {
		t.Errorf("the machine that ran is %s with process %d, which was %d: %v", after.State, after.PID, before.PID, err)
	}
	if got := running.shell("cat /kept"); got != "kept" {
		t.Errorf("the file has %q", got)
	}
	if m, err := created.client.Get(t.Context(), created.name); err != nil || m.State == api.StateRunning {
		t.Errorf("the machine that was created is %s: %v", m.State, err)
	}
}

func badImage(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, func(r *api.CreateRequest) { r.Image = image })
	_, err := g.client.Start(t.Context(), g.name, api.StartRequest{})
	if err == nil || api.ErrorOf(err).Status() < http.StatusBadRequest {
		t.Fatalf("a start without an image got %v", err)
	}
	if target.Kind == kindQEMU && api.CodeOf(err) != api.CodeImagePullFailed {
		t.Errorf("the code is %s: %v", api.CodeOf(err), err)
	}
	m, err := g.client.Get(t.Context(), g.name)
	if err != nil || m.PID != 0 || m.State != api.StateCreated && m.State != api.StateStopped {
		t.Errorf("the machine is %s with process %d: %v", m.State, m.PID, err)
	}
}

func readConsole(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, func(r *api.CreateRequest) { r.Cmd = []string{"sh", "-c", "echo hello-from-the-image; sleep 1000000"} })
	g.start()
	seen := errors.New("seen")
	ctx, cancel := context.WithTimeout(t.Context(), target.Patience)
	defer cancel()
	var all bytes.Buffer
	err := g.client.Logs(ctx, g.name, api.LogsOptions{Follow: true}, writerFunc(func(p []byte) (int, error) {
		if all.Write(p); strings.Contains(all.String(), "hello-from-the-image") {
			return 0, seen
		}
		return len(p), nil
	}))
	if !errors.Is(err, seen) {
		t.Errorf("the console has not what the image's process said: %v\n%.2000s", err, all.String())
	}
	one := 1
	var last bytes.Buffer
	if err := g.client.Logs(ctx, g.name, api.LogsOptions{Tail: &one}, &last); err != nil || strings.Count(last.String(), "\n") > 1 {
		t.Errorf("the last line is %q: %v", last.String(), err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var _ io.Writer = writerFunc(nil)
