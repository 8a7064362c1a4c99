package namespace_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/namespace"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// start starts a first process that reaps children, as a shell does.
func start(t *testing.T, kinds int) *namespace.Namespaces {
	t.Helper()
	first := process.Command{Name: "first", Path: "/bin/sh", Args: []string{"-c", "sleep 600 & wait"}, Dir: t.TempDir()}
	n, err := namespace.Start(first, kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestSocketsAreThoseOfTheNamespace(t *testing.T) {
	n := start(t, namespace.Network)
	if err := n.Run(exec.Command("ip", "link", "set", "lo", "up")); err != nil {
		t.Fatal(err)
	}
	listener, err := n.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			fmt.Fprint(connection, "inside")
			connection.Close()
		}
	}()
	if connection, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		connection.Close()
		t.Error("the listener is in the network of this machine, too")
	}
	connection, err := n.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if answer, err := io.ReadAll(connection); string(answer) != "inside" {
		t.Errorf("the answer is %q (%v)", answer, err)
	}
}

// own are the namespaces of this process, read before a test moves one of its threads, which may be the first one, to others.
var own = map[string]string{"net": link("net"), "mnt": link("mnt"), "pid": link("pid")}

func link(kind string) string {
	to, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		panic(err)
	}
	return to
}

func TestCommandsAreInTheNamespaces(t *testing.T) {
	n := start(t, namespace.Network|namespace.Mounts|namespace.Processes)
	for _, kind := range []string{"net", "mnt", "pid"} {
		want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", n.PID(), kind))
		if err != nil {
			t.Fatal(err)
		}
		var output bytes.Buffer
		// /proc is this machine's, where the command only finds itself through its own /proc/self.
		command := exec.Command("sh", "-c", "mount --make-rprivate / && mount -t proc proc /proc && readlink /proc/self/ns/"+kind)
		command.Stdout, command.Stderr = &output, &output
		if err := n.Run(command); err != nil {
			t.Fatalf("%v: %s", err, &output)
		}
		if got := strings.TrimSpace(output.String()); got != want || got == own[kind] {
			t.Errorf("a command is in %s, want %s; this process is in %s", got, want, own[kind])
		}
	}
}

func TestEverythingEndsWithTheFirstProcess(t *testing.T) {
	n := start(t, namespace.Processes)
	child, err := process.Start(process.Command{
		// Processes that a child starts and leaves also end.
		Name: "child", Path: "/bin/sh", Args: []string{"-c", "setsid sleep 600 & exec sleep 600"}, Dir: t.TempDir(),
		Enter: n.Enter, Guarded: n.Guarding(),
	})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join("/proc", fmt.Sprint(n.PID()), "ns/pid")
	inside, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	<-child.Done()
	others, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		if found, err := os.Readlink(other); err == nil && found == inside {
			t.Errorf("%s is still in the namespace", other)
		}
	}
	if err := syscall.Kill(child.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child still runs: %v", err)
	}
}
