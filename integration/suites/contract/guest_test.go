package contract_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const bootID = "cat /proc/sys/kernel/random/boot_id"

func startTwice(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	first := g.start()
	boot := g.shell(bootID)
	if second := g.start(); second.PID != first.PID || g.shell(bootID) != boot {
		t.Error("the second start was another boot")
	}
}

func stopTwice(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	m := g.start()
	g.stop()
	g.stop()
	if alive(m.PID) {
		t.Errorf("process %d lives after the stop", m.PID)
	}
}

func runCommands(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	g.start()
	second := int64(1)
	for name, test := range map[string]struct {
		request        api.ExecRequest
		code           int
		stdout, stderr string
	}{
		"echo":            {api.ExecRequest{Command: []string{"echo", "hello"}}, 0, "hello\n", ""},
		"exit code":       {api.ExecRequest{Command: []string{"sh", "-c", "echo no >&2; exit 42"}}, 42, "", "no\n"},
		"env":             {api.ExecRequest{Command: []string{"sh", "-c", "echo $A"}, Env: []api.EnvVar{{Name: "A", Value: "b c"}}}, 0, "b c\n", ""},
		"workdir":         {api.ExecRequest{Command: []string{"pwd"}, Workdir: "/tmp"}, 0, "/tmp\n", ""},
		"pipeline":        {api.ExecRequest{Command: []string{"sh", "-c", "printf 'b\\na\\n' | sort | head -n 1"}}, 0, "a\n", ""},
		"input":           {api.ExecRequest{Command: []string{"cat"}, Stdin: "typed"}, 0, "typed", ""},
		"time":            {api.ExecRequest{Command: []string{"sleep", "600"}, TimeoutSecs: &second}, 124, "", ""},
		"unknown command": {api.ExecRequest{Command: []string{"/no/such/program"}}, 127, "", "any"},
	} {
		t.Run(name, func(t *testing.T) {
			got := g.exec(test.request)
			if got.ExitCode != test.code || got.Stdout != test.stdout || test.stderr != "any" && got.Stderr != test.stderr {
				t.Errorf("%+v", got)
			}
		})
	}
	bytesOut := g.exec(api.ExecRequest{Command: []string{"printf", `\377\000a`}})
	if target.Kind == kindQEMU && string(bytesOut.StdoutB64) != "\xff\x00a" {
		t.Errorf("bytes became %q", bytesOut.StdoutB64)
	}
}

// streamCommand lets a command wait for a file that is made when its first output has come.
func streamCommand(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	g.start()
	ctx, cancel := context.WithTimeout(t.Context(), target.Patience)
	defer cancel()
	var all bytes.Buffer
	first := true
	code, err := g.client.ExecStream(ctx, g.name, api.ExecRequest{Command: []string{"sh", "-c", "echo first; until test -e /tmp/go; do sleep 0.1; done; echo last; exit 7"}},
		writerFunc(func(p []byte) (int, error) {
			all.Write(p)
			if first {
				first = false
				g.shell("touch /tmp/go")
			}
			return len(p), nil
		}), io.Discard)
	if err != nil || code != 7 || all.String() != "first\nlast\n" {
		t.Errorf("code %d, %q: %v", code, all.String(), err)
	}
}

func wakeByCommand(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	g.shell("true")
	g.awaitState(api.StateRunning, time.Second)
	g.stop()
	g.shell("true")
	g.awaitState(api.StateRunning, time.Second)
}

func moveFile(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content)
	written, err := g.client.WriteFile(t.Context(), g.name, "/data/a b/file", bytes.NewReader(content))
	if err != nil || written.Size != int64(len(content)) {
		t.Fatalf("%+v: %v", written, err)
	}
	var got bytes.Buffer
	if err := g.client.ReadFile(t.Context(), g.name, "/data/a b/file", &got); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("%d bytes came back: %v", got.Len(), err)
	}
	if err := g.client.ReadFile(t.Context(), g.name, "/data/none", io.Discard); err == nil {
		t.Error("a file that is not there was read")
	}
}

func growDisk(t *testing.T, target Target) {
	t.Helper()
	if target.Kind == kindSmolvm {
		t.Skip("smolvm does not show /storage inside an image's container")
	}
	g := target.guest(t, nil)
	g.start()
	g.shell("echo kept >/storage/kept")
	kib := func(path string) int {
		fields := strings.Fields(g.shell("df -Pk " + path + " | tail -n 1"))
		if len(fields) < 2 {
			t.Fatalf("df says %q", fields)
		}
		size, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	before := kib("/storage")
	size := int64(3)
	if _, err := g.client.Resize(t.Context(), g.name, api.ResizeRequest{StorageGB: &size}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a resize of what runs got %v", err)
	}
	g.stop()
	if _, err := g.client.Resize(t.Context(), g.name, api.ResizeRequest{StorageGB: &size}); err != nil {
		t.Fatal(err)
	}
	g.start()
	if after := kib("/storage"); after < before+900<<10 {
		t.Errorf("the disk had %d KiB and has %d", before, after)
	}
	if got := g.shell("cat /storage/kept"); got != "kept" {
		t.Errorf("the file has %q", got)
	}
}

func keepFiles(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	g.start()
	g.shell("echo kept >/kept")
	g.stop()
	g.start()
	if got := g.shell("cat /kept"); got != "kept" {
		t.Errorf("the file has %q", got)
	}
}

func answerAfterStart(t *testing.T, target Target) {
	t.Helper()
	g, port := target.web(t)
	g.start()
	g.awaitAnswer(port)
	g.stop()
	if connection, err := net.DialTimeout("tcp", net.JoinHostPort(target.Host, fmt.Sprint(port)), time.Second); err == nil {
		connection.Close()
		t.Error("the port of a stopped machine is open")
	}
	g.start()
	g.awaitAnswer(port)
}

func answerAfterCommand(t *testing.T, target Target) {
	t.Helper()
	g, port := target.web(t)
	g.shell("true")
	g.awaitAnswer(port)
	g.stop()
	g.shell("true")
	g.awaitAnswer(port)
}

func answerAfterKill(t *testing.T, target Target) {
	t.Helper()
	g, port := target.web(t)
	g.start()
	g.awaitAnswer(port)
	g.kill()
	g.awaitState(api.StateStopped, 10*time.Second)
	g.start()
	g.awaitAnswer(port)
}

func portTaken(t *testing.T, target Target) {
	t.Helper()
	g, port := target.web(t)
	taken, err := net.Listen("tcp", net.JoinHostPort(target.Host, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.client.Start(t.Context(), g.name, api.StartRequest{})
	if api.CodeOf(err) != api.CodePortInUse || api.ErrorOf(err).Status() != 409 {
		t.Errorf("the start got %v", err)
	}
	if m, err := g.client.Get(t.Context(), g.name); err != nil || m.State == api.StateRunning || m.PID != 0 {
		t.Errorf("the machine is %s with process %d: %v", m.State, m.PID, err)
	}
	taken.Close()
	g.start()
	g.awaitAnswer(port)
}

func killed(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	g.start()
	g.shell("echo kept >/kept; sync")
	g.kill()
	g.awaitState(api.StateStopped, 10*time.Second)
	g.start()
	if got := g.shell("cat /kept"); got != "kept" {
		t.Errorf("the file has %q", got)
	}
}

func deleteRunning(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	m := g.start()
	if err := g.client.Delete(t.Context(), g.name); err != nil {
		t.Fatal(err)
	}
	gone(t, target, g.name)
	if alive(m.PID) {
		t.Errorf("process %d lives after the deletion", m.PID)
	}
}

// routes counts the lines of the table of routes: one, the heading, where there is none.
const routes = "wc -l </proc/net/route"

func withoutNetwork(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, nil)
	if lines := g.shell(routes); lines != "1" {
		t.Errorf("there are %s lines of routes with the heading", lines)
	}
	// Port 53 of an address for documentation: it is not reached with a network, either, but after a wait.
	if got := g.exec(api.ExecRequest{Command: []string{"sh", "-c", "echo | nc -w 2 192.0.2.1 53"}}); got.ExitCode == 0 {
		t.Error("the guest reached something")
	}
}

// policy checks what was refused, since addresses for documentation answer to no one.
func policy(t *testing.T, target Target) {
	t.Helper()
	g := target.guest(t, func(r *api.CreateRequest) { r.Network, r.AllowedCIDRs = true, &[]string{"192.0.2.0/24"} })
	refused := func(destination string) bool {
		events, err := g.client.EgressEvents(t.Context(), g.name, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			if event.Dest == destination {
				return true
			}
		}
		return false
	}
	for _, address := range []string{"192.0.2.1", "198.51.100.1"} {
		g.exec(api.ExecRequest{Command: []string{"sh", "-c", "echo | nc -w 2 " + address + " 80"}})
	}
	poll.Eventually(t, 10*time.Second, 100*time.Millisecond, func() error {
		if !refused("198.51.100.1:80") {
			return errors.New("an address that is not allowed was not refused")
		}
		return nil
	})
	if refused("192.0.2.1:80") {
		t.Error("an address that is allowed was refused")
	}
}
