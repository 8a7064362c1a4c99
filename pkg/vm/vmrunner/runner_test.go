package vmrunner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// example returns the settings of a machine with a disk, a CD drive and a network. Its disk is a file.
func example(t *testing.T) Settings {
	t.Helper()
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	for _, name := range []string{"dev", "images", "cloud-init"} {
		if err := os.Mkdir(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(in("dev"), "system-disk"), strings.Repeat("x", 1<<20))
	return Settings{
		Settings: keeper.Settings{Name: "test-vm", Run: shortDirectory(t), QEMU: "qemu-nowhere", Timeouts: keeper.DefaultTimeouts},
		Machine: vmconfig.Machine{
			Version: vmconfig.Version, Name: "test-vm", UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Firmware: vmconfig.FirmwareBIOS,
			Acceleration: "tcg", MaximumCPUs: 4, MaximumRAM: 1 << 30, Networks: []vmconfig.Network{{Type: vmconfig.NetworkUser}},
			Drives: []vmconfig.Drive{{Type: vmconfig.DriveCD}, {Type: vmconfig.DriveRaw, Name: "system-disk"}},
		},
		Config: in("live.json"), CloudInit: in("cloud-init"), Data: in("data"), Images: in("images"), Devices: in("dev"), State: in("state"),
		AllowEmulation: true, ParkedFor: ParkedFor,
	}
}

// configure writes the configuration file.
func configure(t *testing.T, s Settings, change func(*vmconfig.Live)) {
	t.Helper()
	live := all(s.Machine)
	live.PowerdownTimeout = 60
	change(&live)
	text, err := live.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.Config, text)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// shortDirectory returns a directory with a short path, which sockets need.
func shortDirectory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("", "run") //nolint:usetesting // the name of a test makes the path of a socket too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

// prepare takes steps of a preparation, after which no machine is started. It returns the error of the steps.
func prepare(t *testing.T, s Settings, steps func(context.Context, *preparation) error) (err error) {
	t.Helper()
	enough := errors.New("enough")
	// The control socket of a keeper that ends at once may be served a moment longer.
	s.Run = shortDirectory(t)
	log := slog.New(slog.DiscardHandler)
	end := keeper.New(s.Settings, keeper.Guest{Prepare: func(ctx context.Context, l *keeper.Launch) error {
		err = steps(ctx, newPreparation(s, newCompanions(s, log, func(time.Duration) {}), log, l))
		return errors.Join(err, enough)
	}}, log, io.Discard, io.Discard).Run(t.Context())
	if !strings.Contains(end.Message, enough.Error()) {
		t.Errorf("the steps were not taken: %+v", end)
	}
	return err
}

// expectReason checks the reason of an error, and that its text contains words.
func expectReason(t *testing.T, err error, reason keeper.Reason, words ...string) {
	t.Helper()
	if err == nil || keeper.EndOf(err).Reason != reason {
		t.Errorf("it ends with %v, want %s", err, reason)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
}

func start(s Settings) keeper.End {
	return New(s, slog.New(slog.DiscardHandler), io.Discard, io.Discard).Run(context.Background())
}

// TestEverythingIsPreparedBeforeQEMUIsNeeded: here it is missing.
func TestEverythingIsPreparedBeforeQEMUIsNeeded(t *testing.T) {
	s := example(t)
	write(t, filepath.Join(s.Images, "installer.iso"), "an image")
	configure(t, s, func(l *vmconfig.Live) { l.CurrentCPUs, l.Media[0] = 2, "installer.iso" })
	if end := start(s); end.Reason != keeper.ReasonQEMUMissing {
		t.Errorf("it ended with %+v", end)
	}
}

func TestConfigurationSaysHowLongTheGuestMayTakeToShutDown(t *testing.T) {
	s := example(t)
	s.Timeouts.Boot = keeper.DefaultTimeouts.Boot
	configure(t, s, func(l *vmconfig.Live) { l.PowerdownTimeout = 7 })
	r := New(s, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
	if r.settings.Timeouts.Powerdown.Seconds() != 7 || r.settings.Timeouts.Boot != 0 {
		t.Errorf("the timeouts are %+v", r.settings.Timeouts)
	}
	if err := os.Remove(s.Config); err != nil {
		t.Fatal(err)
	}
	if r := New(s, slog.New(slog.DiscardHandler), io.Discard, io.Discard); r.settings.Timeouts.Powerdown != s.Timeouts.Powerdown {
		t.Errorf("without a configuration the timeouts are %+v", r.settings.Timeouts)
	}
}

func TestBrokenConfigurationEndsTheRunner(t *testing.T) {
	s := example(t)
	write(t, s.Config, "/Runner: [")
	if end := start(s); end.Reason != keeper.ReasonSettingsInvalid || !strings.Contains(end.Message, s.Config) {
		t.Errorf("it ended with %+v", end)
	}
}
