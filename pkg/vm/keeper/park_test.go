package keeper

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// TestParkedMachineIsNeitherReadyNorStarted until it gets permission, or is asked to stop.
func TestParkedMachineIsNeitherReadyNorStarted(t *testing.T) {
	enough := errors.New("enough")
	end := launch(t, func(k *Keeper, l *Launch) error {
		looked := 0
		err := l.Park(t.Context(), func(time.Duration) (bool, string) {
			if looked++; looked == 1 {
				return false, "waiting"
			}
			status := k.Status(t.Context())
			if status.State != StateParked || status.Ready || !status.Live || status.Unready != "the machine is parked: waiting" {
				t.Errorf("the parked machine is %+v", status)
			}
			return true, ""
		})
		return errors.Join(err, enough)
	})
	if end.Message != enough.Error() {
		t.Errorf("it ended with %+v", end)
	}
}

func TestParkedMachineEndsWhenItIsToldTo(t *testing.T) {
	run, err := os.MkdirTemp("", "keeper") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	ctx, stop := context.WithCancel(t.Context())
	var told []End
	end := New(Settings{Name: "vm", Run: run, QEMU: "qemu-nowhere", Timeouts: DefaultTimeouts}, Guest{
		Prepare: func(ctx context.Context, l *Launch) error {
			return l.Park(ctx, func(time.Duration) (bool, string) { stop(); return false, "waiting" })
		},
		Ended: func(end End) { told = append(told, end) },
	}, slog.New(slog.DiscardHandler), io.Discard, io.Discard).Run(ctx)
	if end.Reason != ReasonGuestShutDown || !strings.Contains(end.Message, "parked") {
		t.Errorf("it ended with %+v", end)
	}
	if len(told) != 1 || told[0] != end {
		t.Errorf("the guest was notified of the ends %+v", told)
	}
}

// TestEmulationIsNotChosenSilently where nothing proves that KVM works.
func TestEmulationIsNotChosenSilently(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err == nil {
		t.Log("there is a KVM device here, which may open")
	}
	end := launch(t, func(_ *Keeper, l *Launch) error {
		_, err := l.ChooseAccelerator(t.Context(), Acceleration{Mode: "tcg", Forbidden: "Allow it by X"})
		return err
	})
	if end.Reason != ReasonAccelerationUnavailable || !strings.Contains(end.Message, "Allow it by X") {
		t.Errorf("it ended with %+v", end)
	}
}
