package live_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
