// Package podnet simulates pods with network namespaces. A Host has a bridge like the one of a CNI plugin. A Pod is
// connected to it by a veth pair and has only an address and a gateway. A Guest is a network card at the end of a tap
// device in a Pod, in place of a virtual machine.
//
// The namespaces have no names. A child process holds each one and ends with this process in any case, so nothing is
// left behind even after SIGKILL. Everything needs root and otherwise fails the test.
package podnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/integration/harness/netns"
)

// Namespace is a separate network namespace. Host, Pod and Guest are namespaces.
type Namespace struct {
	path string
	file *os.File
}

// newNamespace creates a namespace that lives until the end of the test. Its loopback interface is down.
func newNamespace(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces are made by root only: run the tests as root")
	}
	n, err := startHolder(t)
	if err != nil {
		t.Fatalf("making a network namespace: %s", err)
	}
	return n
}

// startHolder starts the process that the namespace belongs to. It waits for the end of its standard input, which comes
// when this process or the test ends. Unlike PR_SET_PDEATHSIG, that does not depend on the thread that started it.
func startHolder(t testing.TB) (*Namespace, error) {
	holder := exec.Command("cat")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	lifeline, err := holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	n := &Namespace{path: fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)}
	t.Cleanup(func() { n.end(t, lifeline, holder) })
	n.file, err = os.Open(n.path)
	return n, err
}

func (n *Namespace) end(t testing.TB, lifeline io.Closer, holder *exec.Cmd) {
	if err := errors.Join(n.file.Close(), lifeline.Close(), holder.Wait()); err != nil {
		t.Errorf("ending the network namespace %s: %s", n.path, err)
	}
}

// Path returns the file of the namespace, as nsenter --net= takes it. It is valid until the end of the test.
func (n *Namespace) Path() string { return n.path }

// Do calls f in the namespace: sockets that f creates and interface names that it uses are those of the namespace.
// Goroutines that f starts are not in it. The sockets remain in the namespace after Do has returned. Do may be nested.
func (n *Namespace) Do(f func() error) error {
	return netns.Do(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the namespace %s: %w", n.path, err)
		}
		return nil
	}, f)
}

// Command returns a program that will run in the namespace, with the mounts and processes of the test. It is killed
// when the thread that starts it ends, at the latest with this process.
func (n *Namespace) Command(name string, args ...string) *exec.Cmd {
	return n.CommandContext(context.Background(), name, args...)
}

// CommandContext is Command with a context that kills the program when it is done.
func (n *Namespace) CommandContext(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.path, "--", name}, args...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Run runs a program in the namespace until it ends and returns its output. The test fails if the program does.
func (n *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	command := n.CommandContext(t.Context(), name, args...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s\n%s", command, err, output)
	}
	return string(output)
}

// Dial connects from within the namespace. The address has an IP address, not a name.
func (n *Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return netns.Dial(ctx, n, network, address)
}

// Listen listens within the namespace for connections of a stream network ("tcp", "tcp4", "tcp6").
func (n *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return netns.Listen(ctx, n, network, address)
}

// ListenPacket listens within the namespace on a packet network ("udp", "udp4", "udp6").
func (n *Namespace) ListenPacket(ctx context.Context, network, address string) (connection net.PacketConn, err error) {
	err = n.Do(func() (err error) {
		connection, err = new(net.ListenConfig).ListenPacket(ctx, network, address)
		return err
	})
	return connection, err
}
