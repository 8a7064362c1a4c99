package runner

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
		Name: "master", CPUs: 1, Memory: 256, Etcd: volume, EtcdDisk: 1 << 20, State: filepath.Join(directory, "state"), Run: filepath.Join(directory, "run"),
		BootData: []string{bootData}, Timeouts: DefaultTimeouts,
		ImageSettings: ImageSettings{Images: filepath.Join(directory, "images"), Image: osimage.Image{
			Name: "none", Kernel: osimage.File{URL: "file:///nonexistent/kernel"}, Initrd: osimage.File{URL: "file:///nonexistent/initrd"},
		}},
	}, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
}

// TestVolumeIsLookedAtOnceItIsLocked: while a machine waits for its volume, the machine that it replaces still runs,
// and its guest may create a link in place of the disk at the last moment.
func TestVolumeIsLookedAtOnceItIsLocked(t *testing.T) {
	r := master(t)
	older, err := disk.Acquire(r.settings.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		p   *prepared
		err error
	}
	ended := make(chan result, 1)
	go func() {
		p, err := r.prepare(t.Context())
		ended <- result{p, err}
	}()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(r.board.get().Step, "waiting for"); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not wait: %+v", r.board.get())
		}
		time.Sleep(10 * time.Millisecond)
	}
	host := filepath.Join(t.TempDir(), "host")
	if err := errors.Join(os.Symlink(host, filepath.Join(r.settings.Etcd, etcdfiles.Image)), older.Close()); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	defer got.p.Close()
	if !errors.Is(got.err, ownfile.ErrForeign) || endOf(got.err).Reason != ReasonDiskFailed {
		t.Errorf("it ended with %v", got.err)
	}
	if _, err := os.Lstat(host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the host was made: %v", err)
	}
}

// TestQEMUGetsTheDiskThatWasOpened: replacing the file under the disk's name after it was opened makes no difference.
func TestQEMUGetsTheDiskThatWasOpened(t *testing.T) {
	r := master(t)
	r.settings.Disks = []Disk{{Serial: SerialOS, Size: 16 << 20}, {Serial: "dockerfs", Size: 1 << 20}}
	p := &prepared{choice: qemu.Choice{Accelerator: qemu.TCG}, image: example.image, card: example.card}
	defer p.Close()
	for _, step := range []func(context.Context, *prepared) error{r.readBootData, r.lockDisks, r.findEtcd, r.makeDisks} {
		if err := step(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(r.settings.Etcd, etcdfiles.Image)
	opened, err := os.Lstat(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(image), os.Symlink("/etc/passwd", image)); err != nil {
		t.Fatal(err)
	}
	for _, d := range machine(r.settings, p).Disks {
		if d.Descriptor < firstDescriptor {
			t.Errorf("disk %s has the descriptor %d", d.Serial, d.Descriptor)
			continue
		}
		info, err := p.inherited[d.Descriptor-firstDescriptor].Stat()
		if err != nil || !info.Mode().IsRegular() || d.Serial == etcdTag && !os.SameFile(info, opened) {
			t.Errorf("disk %s is %v, %v", d.Serial, info, err)
		}
	}
	arguments, err := machine(r.settings, p).Args()
	if err != nil || slices.ContainsFunc(arguments, func(a string) bool { return strings.Contains(a, "filename="+r.settings.Etcd) }) {
		t.Errorf("QEMU opens a path: %q, %v", arguments, err)
	}
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
			p := &prepared{}
			err := r.chooseAccelerator(t.Context(), p)
			switch {
			case allowed && (err != nil || p.choice.Accelerator != qemu.TCG):
				t.Errorf("%s: %v, %v", mode, p.choice, err)
			case !allowed && (err == nil || endOf(err).Reason != ReasonAccelerationUnavailable || endOf(err).Reason.ExitCode() != 18):
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
