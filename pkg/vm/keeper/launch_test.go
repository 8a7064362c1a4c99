package keeper

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// launch prepares a machine with a QEMU that does not exist, and returns how that ended.
func launch(t *testing.T, prepare func(*Keeper, *Launch) error) End {
	t.Helper()
	run, err := os.MkdirTemp("", "keeper") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	var k *Keeper
	k = New(Settings{Name: "vm", Run: run, QEMU: "qemu-nowhere", Timeouts: DefaultTimeouts}, Guest{
		Prepare: func(_ context.Context, l *Launch) error { return prepare(k, l) },
		Status: func(ctx context.Context) any {
			return struct {
				Status
				Guest string `json:"guest"`
			}{k.Status(ctx), "new"}
		},
	}, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
	return k.Run(t.Context())
}

func minimal(l *Launch) {
	l.Machine.Memory, l.Machine.CPU.Count, l.Machine.Accelerator = 128, 1, "tcg"
}

func TestGuestAddsToTheStatus(t *testing.T) {
	end := launch(t, func(k *Keeper, l *Launch) error {
		l.Tell("waiting")
		var got struct {
			State       State
			Step, Guest string
			Live        bool
		}
		err := Client{Socket: k.settings.socket()}.Status(t.Context(), &got)
		if err != nil || got.State != StatePreparing || got.Step != "waiting" || got.Guest != "new" || !got.Live {
			t.Errorf("%+v, %v", got, err)
		}
		return nil
	})
	if end.Reason != ReasonSettingsInvalid { // the machine is empty
		t.Errorf("it ended with %+v", end)
	}
}

func TestNothingOfALaunchIsLeft(t *testing.T) {
	for name, failure := range map[string]error{"which fails": Failf(ReasonDiskFull, "full"), "whose QEMU does not start": nil} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			secret, given := filepath.Join(directory, "secret"), (*os.File)(nil)
			var order []string
			end := launch(t, func(_ *Keeper, l *Launch) error {
				minimal(l)
				l.OnClose(func() error { order = append(order, "first"); return nil })
				err := l.Lock(t.Context(), directory)
				l.OnClose(func() error { order = append(order, "last"); return nil })
				given, _ = os.Open(os.DevNull)
				if n := l.Give(given); l.Files[n-FirstDescriptor] != given {
					t.Errorf("QEMU gets %v and not the file as %d", l.Files, n)
				}
				return errors.Join(err, l.WriteOnce(secret, []byte("key")), failure)
			})
			want := ReasonQEMUMissing
			if failure != nil {
				want = ReasonDiskFull
			}
			if end.Reason != want {
				t.Errorf("it ended with %+v", end)
			}
			if _, err := os.Stat(secret); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the secret is left behind: %v", err)
			}
			if err := given.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the given file is still open: %v", err)
			}
			if !slices.Equal(order, []string{"last", "first"}) {
				t.Errorf("released in the order %q", order)
			}
			if end := launch(t, func(k *Keeper, l *Launch) error {
				k.settings.Timeouts.Lock = time.Second
				return l.Lock(t.Context(), directory)
			}); end.Reason == ReasonDiskLocked {
				t.Errorf("the lock is still held: %+v", end)
			}
		})
	}
}

func TestStepsEndWithTheFirstFailure(t *testing.T) {
	end := launch(t, func(_ *Keeper, l *Launch) error {
		return l.Do(t.Context(),
			Step{"doing one thing", func(context.Context) error { return nil }},
			Step{"doing another", func(context.Context) error { return Failf(ReasonNetworkFailed, "no") }},
			Step{"doing the rest", func(context.Context) error { t.Error("it continues"); return nil }})
	})
	if want := (End{Reason: ReasonNetworkFailed, Message: "doing another: no"}); end != want {
		t.Errorf("it ended with %+v, want %+v", end, want)
	}
}
