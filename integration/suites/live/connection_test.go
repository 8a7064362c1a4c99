package live_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

func TestMonitorTalksToOneClientAtATime(t *testing.T) {
	t.Parallel()
	g := start(t, bare())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := qmp.Dial(ctx, g.path)
	wants(t, "a second client", err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "another client") {
		t.Errorf("the error does not say why: %v", err)
	}
	do(t, g.Close())
	second, err := qmp.Dial(t.Context(), g.path)
	do(t, err)
	defer second.Close()
	if status, err := second.Status(t.Context()); err != nil || status.Status != "prelaunch" {
		t.Errorf("the status is %v, %v", status, err)
	}
}

// cuttable forwards successive connections to a socket until they are cut.
func cuttable(t *testing.T, to string) (path string, cut func()) {
	t.Helper()
	path = filepath.Join(filepath.Dir(to), "cuttable")
	listener, err := net.Listen("unix", path)
	do(t, err)
	t.Cleanup(func() { listener.Close() })
	cuts := make(chan struct{})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				continue
			}
			go io.Copy(near, far) //nolint:errcheck // both ends are cut
			go io.Copy(far, near) //nolint:errcheck // both ends are cut
			<-cuts
			near.Close()
			far.Close()
		}
	}()
	return path, func() { cuts <- struct{}{} }
}

func TestConnectionIsMadeAnewWhileQEMULives(t *testing.T) {
	t.Parallel()
	g := start(t, bare())
	do(t, g.Close())
	path, cut := cuttable(t, g.path)
	finished := errors.New("finished")
	var found []string
	err := qmp.Keep(t.Context(), path, func(ctx context.Context, c *qmp.Client) error {
		events := c.Subscribe(qmp.EventResume, qmp.EventStop)
		status, err := c.Status(ctx)
		found = append(found, status.Status)
		if err != nil || len(found) == 3 {
			return errors.Join(err, finished)
		}
		do(t, c.Cont(ctx))
		if len(found) == 1 {
			next[any](t, events, qmp.EventResume)
		}
		cut()
		<-ctx.Done()
		return ctx.Err()
	})
	wants(t, "the last session", err, finished)
	if diff := cmp.Diff([]string{"prelaunch", "running", "running"}, found); diff != "" {
		t.Errorf("the sessions find the machine otherwise (-want +got):\n%s", diff)
	}
}

func TestPasswordOfADisplay(t *testing.T) {
	t.Parallel()
	m := bare()
	m.Display = &qemu.Display{VNC: filepath.Join(t.TempDir(), "vnc"), Password: true}
	g := start(t, m)
	do(t, g.SetPassword(t.Context(), "vnc", "geheim", "+60"))
	do(t, g.SetPassword(t.Context(), "vnc", "geheim", "never"))
	err := g.SetPassword(t.Context(), "spice", "geheim", "never")
	refused(t, "a display that there is not", err, "SPICE is not in use")
	if strings.Contains(err.Error(), "geheim") {
		t.Errorf("the error tells the password: %v", err)
	}
}
