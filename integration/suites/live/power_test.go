package live_test

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// shutdown checks the data of the next event, which is a SHUTDOWN or a RESET.
func shutdown(t *testing.T, events *qmp.Subscription, name string, guest bool, reason string) {
	t.Helper()
	if got := next[qmp.Shutdown](t, events, name); got != (qmp.Shutdown{Guest: guest, Reason: reason}) {
		t.Errorf("%s says %+v; want guest %t, reason %s", name, got, guest, reason)
	}
}

func TestStatusFromStartToPause(t *testing.T) {
	t.Parallel()
	g := start(t, bare())
	events := g.Subscribe()
	is := func(want qmp.Status) {
		t.Helper()
		if got, err := g.Status(t.Context()); err != nil || got != want {
			t.Errorf("the status is %+v, %v; want %+v", got, err, want)
		}
	}
	is(qmp.Status{Status: "prelaunch"})
	do(t, g.Cont(t.Context()))
	next[any](t, events, eventResume)
	is(qmp.Status{Running: true, Status: "running"})
	do(t, g.Stop(t.Context()))
	next[any](t, events, eventStop)
	is(qmp.Status{Status: "paused"})
	if version, err := g.Version(t.Context()); err != nil || version.QEMU.Major < 7 {
		t.Errorf("the version is %s, %v", version, err)
	}
	if kvm, err := g.KVM(t.Context()); err != nil || kvm {
		t.Errorf("KVM is %t, %v", kvm, err)
	}
}

func TestPowerButtonShutsTheGuestDown(t *testing.T) {
	t.Parallel()
	g := start(t, tiny(t))
	g.boot(t)
	events := g.Subscribe()
	do(t, g.Powerdown(t.Context()))
	next[any](t, events, eventPowerdown)
	shutdown(t, events, qmp.EventShutdown, true, "guest-shutdown")
	if status := g.end(t); status != 0 {
		t.Errorf("QEMU ends with %d", status)
	}
	none(t, events)
}

func TestResetsByTheHostAndByTheGuest(t *testing.T) {
	t.Parallel()
	g := start(t, tiny(t))
	g.boot(t)
	events := g.Subscribe(qmp.EventReset, qmp.EventShutdown)
	after := g.said()
	do(t, g.Reset(t.Context()))
	shutdown(t, events, qmp.EventReset, false, "host-qmp-system-reset")
	g.expect(t, after, "tiny: ready")
	after = g.said()
	g.tell(t, "reboot")
	shutdown(t, events, qmp.EventReset, true, "guest-reset")
	g.expect(t, after, "tiny: ready")
}

func TestPowerButtonIgnored(t *testing.T) {
	t.Parallel()
	g := start(t, tiny(t, "tiny.ignore_powerdown"))
	g.boot(t)
	events := g.Subscribe()
	do(t, g.Powerdown(t.Context()))
	next[any](t, events, eventPowerdown)
	g.expect(t, 0, "tiny: powerdown ignored")
	do(t, g.Quit(t.Context()))
	shutdown(t, events, qmp.EventShutdown, false, "host-qmp-quit")
	if status := g.end(t); status != 0 {
		t.Errorf("QEMU ends with %d", status)
	}
	none(t, events)
}

func TestPowerButtonWithoutOperatingSystem(t *testing.T) {
	t.Parallel()
	g := start(t, bare())
	do(t, g.Cont(t.Context()))
	events := g.Subscribe()
	do(t, g.Powerdown(t.Context()))
	next[any](t, events, eventPowerdown)
	g.signal(syscall.SIGTERM)
	shutdown(t, events, qmp.EventShutdown, false, "host-signal")
	if status := g.end(t); status != 0 {
		t.Errorf("QEMU ends with %d", status)
	}
	none(t, events)
}

func TestKilledQEMUSaysNothing(t *testing.T) {
	t.Parallel()
	g := start(t, bare())
	do(t, g.Cont(t.Context()))
	events := g.Subscribe()
	g.signal(syscall.SIGKILL)
	none(t, events)
	if status := g.end(t); status != -1 {
		t.Errorf("QEMU ends with %d", status)
	}
	if err := g.Err(); !errors.Is(err, qmp.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the connection ends with %v", err)
	}
	if _, err := g.Status(t.Context()); !errors.Is(err, qmp.ErrClosed) {
		t.Errorf("the status of a dead QEMU is %v", err)
	}
}
