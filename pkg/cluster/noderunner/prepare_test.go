package noderunner

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// master returns the runner of a master whose volume is a directory.
func master(t *testing.T) *Runner {
	t.Helper()
	directory := t.TempDir()
	volume, bootData := filepath.Join(directory, "etcd"), filepath.Join(directory, "user_data")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(`{"ignition":{"version":"3.3.0"}}`))
	err = errors.Join(err, w.Close(), os.Mkdir(volume, 0o700))
	if err = errors.Join(err, os.WriteFile(bootData, []byte(base64.StdEncoding.EncodeToString(packed.Bytes())), 0o600)); err != nil {
		t.Fatal(err)
	}
	return New(Settings{
		Settings: keeper.Settings{Name: "master", Run: shortDirectory(t), QEMU: "qemu-system-x86_64", Timeouts: keeper.DefaultTimeouts},
		CPUs:     1, Memory: 256, Etcd: volume, EtcdDisk: 1 << 20, State: filepath.Join(directory, "state"), BootData: []string{bootData}, Network: NetworkUser,
		Source: osimage.Source{Images: filepath.Join(directory, "images"), Image: osimage.Image{
			Name: "none", Kernel: osimage.File{URL: "file:///nonexistent/kernel"}, Initrd: osimage.File{URL: "file:///nonexistent/initrd"},
		}},
	}, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
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
func prepare(t *testing.T, s Settings, steps func(*preparation) error) (err error) {
	t.Helper()
	enough := errors.New("enough")
	log := slog.New(slog.DiscardHandler)
	end := keeper.New(s.Settings, keeper.Guest{Prepare: func(_ context.Context, l *keeper.Launch) error {
		err = steps(newPreparation(s, log, l))
		return errors.Join(err, enough)
	}}, log, io.Discard, io.Discard).Run(t.Context())
	if !strings.Contains(end.Message, enough.Error()) {
		t.Errorf("the steps were not taken: %+v", end)
	}
	return err
}

// TestVolumeIsLookedAtOnceItIsLocked: while a machine waits for its volume, the machine that it replaces still runs,
// and its guest may create a link in place of the disk at the last moment.
func TestVolumeIsLookedAtOnceItIsLocked(t *testing.T) {
	r := master(t)
	older, err := disk.Acquire(r.settings.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan keeper.End, 1)
	go func() { ended <- r.Run(t.Context()) }()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(r.Status(t.Context()).Step, "waiting for"); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait: %+v", r.Status(t.Context()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	host := filepath.Join(t.TempDir(), "host")
	if err := errors.Join(os.Symlink(host, filepath.Join(r.settings.Etcd, etcdfiles.Image)), older.Close()); err != nil {
		t.Fatal(err)
	}
	foreign := (&ownfile.ForeignError{Path: filepath.Join(r.settings.Etcd, etcdfiles.Image), What: "is a symbolic link"}).Error()
	if end := <-ended; end.Reason != keeper.ReasonDiskFailed || !strings.Contains(end.Message, foreign) {
		t.Errorf("it ended with %+v", end)
	}
	if _, err := os.Lstat(host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the host was made: %v", err)
	}
}

// TestQEMUGetsTheDiskThatWasOpened: replacing the file under the disk's name after it was opened makes no difference.
func TestQEMUGetsTheDiskThatWasOpened(t *testing.T) {
	r := master(t)
	r.settings.Disks = []Disk{{Serial: SerialOS, Size: 16 << 20}, {Serial: "dockerfs", Size: 1 << 20}}
	err := prepare(t, r.settings, func(p *preparation) error {
		p.choice, p.image, p.card = qemu.Choice{Accelerator: qemu.TCG}, example.image, example.card
		for _, step := range []func(context.Context) error{p.readBootData, p.lockDisks, p.findEtcd, p.makeDisks} {
			if err := step(t.Context()); err != nil {
				return err
			}
		}
		return expectOpened(t, p)
	})
	if err != nil {
		t.Error(err)
	}
}

// expectOpened replaces etcd's disk, and checks that QEMU gets the disks that were opened.
func expectOpened(t *testing.T, p *preparation) error {
	t.Helper()
	image := filepath.Join(p.settings.Etcd, etcdfiles.Image)
	opened, err := os.Lstat(image)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Remove(image), os.Symlink("/etc/passwd", image)); err != nil {
		return err
	}
	m := p.settings.Complete(machine(p.settings, p.prepared))
	for _, d := range m.Disks {
		if d.Descriptor < keeper.FirstDescriptor {
			t.Errorf("disk %s has the descriptor %d", d.Serial, d.Descriptor)
			continue
		}
		info, err := p.Files[d.Descriptor-keeper.FirstDescriptor].Stat()
		if err != nil || !info.Mode().IsRegular() || d.Serial == etcdTag && !os.SameFile(info, opened) {
			t.Errorf("disk %s is %v, %v", d.Serial, info, err)
		}
	}
	arguments, err := m.Args()
	if err != nil || len(m.Disks) != 3 || slices.ContainsFunc(arguments, func(a string) bool { return strings.Contains(a, "filename="+p.settings.Etcd) }) {
		t.Errorf("QEMU opens a path: %q, %v", arguments, err)
	}
	return nil
}

// TestEmulationIsNeverSilent: unless emulation is allowed, a machine without KVM does not start and says which setting
// would permit it, both if emulation was requested and if KVM is missing.
func TestEmulationIsNeverSilent(t *testing.T) {
	if opens("/dev/kvm") {
		t.Log("KVM may work here: mode auto is not tried")
	}
	for _, mode := range []qemu.Mode{qemu.ModeTCG, qemu.ModeAuto} {
		if mode == qemu.ModeAuto && opens("/dev/kvm") {
			continue
		}
		for _, allowed := range []bool{false, true} {
			r := master(t)
			r.settings.Acceleration, r.settings.AllowEmulation = mode, allowed
			var choice qemu.Choice
			err := prepare(t, r.settings, func(p *preparation) error {
				err := p.chooseAccelerator(t.Context())
				choice = p.choice
				return err
			})
			switch {
			case allowed && (err != nil || choice.Accelerator != qemu.TCG):
				t.Errorf("%s: %v, %v", mode, choice, err)
			case !allowed && (err == nil || keeper.EndOf(err).Reason != keeper.ReasonAccelerationUnavailable || keeper.EndOf(err).Reason.ExitCode() != 18):
				t.Errorf("%s: it ended with %v", mode, err)
			case !allowed && !strings.Contains(err.Error(), "service.machine.allowemulation"):
				t.Errorf("%s: the setting is not named: %v", mode, err)
			}
		}
	}
}

func opens(device string) bool {
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return file.Close() == nil
}
