package cmd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// newTerminal returns a terminal of its own, and what it shows.
func newTerminal(t *testing.T) (terminal *os.File, shows *bufio.Reader) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	if _, err := term.MakeRaw(int(terminal.Fd())); err != nil {
		t.Fatal(err)
	}
	return terminal, bufio.NewReader(screen)
}

// TestTerminalsGetNoEscapeSequencesOfGuests: a guest prints them for the administrator who reads its output.
func TestTerminalsGetNoEscapeSequencesOfGuests(t *testing.T) {
	const hostile, harmless = "\x1b]0;title\a\x1b[2J ü\tok\r\u009b5m \x7f\xff\x9b.", "^[]0;title^G^[[2J ü\tok\r�5m ^?��."
	_, kubeconfig := newPlayedCluster(t)
	terminal, shows := newTerminal(t)
	c := New()
	c.SetIn(strings.NewReader(hostile + "\n"))
	c.SetOut(terminal)
	c.SetErr(terminal)
	c.SetArgs([]string{"smolvm", "exec", "--kubeconfig=" + kubeconfig, "web", "-i", "--", "cat"})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	// The API of machines sends text, in which what is no UTF-8 is replaced already.
	if got, err := shows.ReadString('\n'); err != nil || got != harmless+"\n" {
		t.Errorf("%v; the terminal shows %q, want %q", err, got, harmless)
	}
	if out, _, err := look(kubeconfig, strings.NewReader("\x1b[2J"), "exec", "web", "-i", "--", "cat"); err != nil || out != "\x1b[2J" {
		t.Errorf("%v; a file gets %q", err, out)
	}
	for n := range len(hostile) {
		var all bytes.Buffer
		w := &plainWriter{out: &all}
		for _, part := range []string{hostile[:n], hostile[n:]} {
			if written, err := w.Write([]byte(part)); err != nil || written != len(part) {
				t.Fatalf("%d bytes were written: %v", written, err)
			}
		}
		if all.String() != harmless {
			t.Errorf("cut at %d, it is %q", n, all.String())
		}
	}
}

// TestErrorsHaveNoEscapeSequencesOfNodes: conditions have words of runtimes, and a SmolVMNode has what one on a node that was
// taken over writes.
func TestErrorsHaveNoEscapeSequencesOfNodes(t *testing.T) {
	p, kubeconfig := newPlayedCluster(t)
	p.objects["/apis/vm.smolvm.dev/v1alpha1/smolvmnodes/node-1"].(*v1alpha1.SmolVMNode).Status.Endpoint.PodName = "x\x1b[2J"
	_, _, err := look(kubeconfig, strings.NewReader(""), "logs", "web")
	if err == nil || !strings.Contains(err.Error(), "smolvm-system/x^[[2J") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the error is %q", err)
	}
	var exit *runner.ExitError
	if err := plainly(&runner.ExitError{Code: 3, Message: "\a"}); !errors.As(err, &exit) || exit.Code != 3 || err.Error() != "^G" {
		t.Errorf("the error with a code is %q", err)
	}
}
