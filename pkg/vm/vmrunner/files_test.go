package vmrunner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudinit"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// content returns what a file descriptor of QEMU's process leads to.
func content(t *testing.T, p *preparation, descriptor int) []byte {
	t.Helper()
	file := p.Files[descriptor-keeper.FirstDescriptor]
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 16<<20))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestQEMUGetsTheDisksThatWereLocked(t *testing.T) {
	s := example(t)
	err := prepare(t, s, func(ctx context.Context, p *preparation) error {
		if err := errors.Join(p.lockDisks(ctx), p.openDisks(ctx)); err != nil {
			return err
		}
		opened := p.disks["system-disk"]
		if opened.device || len(content(t, p, opened.descriptor)) != 1<<20 {
			t.Errorf("the disk is %+v", opened)
		}
		if _, err := disk.Acquire(filepath.Join(s.Devices, "system-disk")); !errors.Is(err, disk.ErrLocked) {
			t.Errorf("the disk is not locked: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestQEMUGetsABlockDevice(t *testing.T) {
	s := example(t)
	output, err := exec.Command("losetup", "--find", "--show", filepath.Join(s.Devices, "system-disk")).Output()
	if err != nil {
		t.Skip("losetup needs root, and a free device:", err)
	}
	loop := strings.TrimSpace(string(output))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", loop).Run() })
	s.Devices, s.Machine.Drives[1].Name = filepath.Dir(loop), filepath.Base(loop)
	err = prepare(t, s, func(ctx context.Context, p *preparation) error {
		err := errors.Join(p.lockDisks(ctx), p.openDisks(ctx))
		if opened := p.disks[filepath.Base(loop)]; err == nil && !opened.device {
			t.Errorf("the disk is %+v", opened)
		} else if flags, err := unix.FcntlInt(p.Files[opened.descriptor-keeper.FirstDescriptor].Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_DIRECT == 0 {
			t.Errorf("QEMU's descriptor has the flags %#x (%v), and cache.direct needs O_DIRECT", flags, err)
		}
		if _, err := disk.Acquire(loop); !errors.Is(err, disk.ErrLocked) {
			t.Errorf("the disk is not locked: %v", err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDiskThatIsNoneIsRefused(t *testing.T) {
	s := example(t)
	path := filepath.Join(s.Devices, "system-disk")
	for name, replace := range map[string]func() error{
		"nothing":     func() error { return nil },
		"a link":      func() error { return os.Symlink("/etc/passwd", path) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), replace()); err != nil {
				t.Fatal(err)
			}
			err := prepare(t, s, func(ctx context.Context, p *preparation) error { return p.lockDisks(ctx) })
			expectReason(t, err, keeper.ReasonDiskFailed, "disk system-disk", path)
			if _, _, err := openDisk(path); err == nil {
				t.Error("it is opened")
			}
		})
	}
}

func TestDiskOfAnotherMachineIsNotTaken(t *testing.T) {
	s := example(t)
	s.Timeouts.Lock = time.Millisecond
	lock, err := disk.Acquire(filepath.Join(s.Devices, "system-disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if end := start(s); end.Reason != keeper.ReasonDiskLocked {
		t.Errorf("it ended with %+v", end)
	}
}

func TestMachineHasItsOwnFirmwareVariables(t *testing.T) {
	s := example(t)
	s.Machine.Firmware = vmconfig.FirmwareUEFI4M
	root := t.TempDir()
	ovmf := filepath.Join(root, "usr/share/OVMF")
	if err := errors.Join(os.MkdirAll(ovmf, 0o700), os.Mkdir(s.Data, 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(ovmf, "OVMF_CODE_4M.fd"), "code")
	write(t, filepath.Join(ovmf, "OVMF_VARS_4M.fd"), "template")
	own := filepath.Join(s.Data, "OVMF_CODE_4M-vars.fd")
	step := func(want string) {
		t.Helper()
		err := prepare(t, s, func(ctx context.Context, p *preparation) error {
			p.root = root
			if err := p.prepareFirmware(ctx); err != nil {
				return err
			}
			if got := string(content(t, p, p.firmware.VarsDescriptor)); got != want || p.firmware.Vars != own || p.firmware.Secure {
				t.Errorf("the variables are %q of %+v, want %q", got, p.firmware, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	step("template")
	write(t, own, "a boot entry")
	step("a boot entry")

	if err := errors.Join(os.Remove(own), os.Symlink("/etc/passwd", own)); err != nil {
		t.Fatal(err)
	}
	err := prepare(t, s, func(ctx context.Context, p *preparation) error { p.root = root; return p.prepareFirmware(ctx) })
	expectReason(t, err, keeper.ReasonDiskFailed, own, "symbolic link")
	err = prepare(t, s, func(ctx context.Context, p *preparation) error { p.root = t.TempDir(); return p.prepareFirmware(ctx) })
	expectReason(t, err, keeper.ReasonFirmwareMissing, "OVMF_CODE_4M.fd", "image of the runner")
}

func TestGuestGetsTheDataForCloudInit(t *testing.T) {
	s := example(t)
	s.Machine.CloudInit, s.Machine.DiskLinks = true, true
	write(t, filepath.Join(s.CloudInit, "meta-data"), "instance-id: v1\n")
	write(t, filepath.Join(s.CloudInit, "user-data"), "#cloud-config\n")
	err := prepare(t, s, func(ctx context.Context, p *preparation) error {
		if err := errors.Join(p.readCloudInit(ctx), p.makeCloudInit(ctx)); err != nil {
			return err
		}
		image := content(t, p, p.cloudInitDescriptor)
		for _, part := range []string{cloudinit.Label, "instance-id: v1\n", "#cloud-config\n", `SYMLINK+="system-disk"`} {
			if !bytes.Contains(image, []byte(part)) {
				t.Errorf("the disk does not contain %q", part)
			}
		}
		if _, err := p.Files[p.cloudInitDescriptor-keeper.FirstDescriptor].WriteAt([]byte("x"), 0); err == nil {
			t.Error("the disk can be written to")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDataForCloudInitIsNeverHalf(t *testing.T) {
	s := example(t)
	s.Machine.CloudInit = true
	read := func(ctx context.Context, p *preparation) error { return p.readCloudInit(ctx) }
	write(t, filepath.Join(s.CloudInit, "meta-data"), "instance-id: v1\n")
	expectReason(t, prepare(t, s, read), keeper.ReasonBootDataMissing, "user-data", "Secret")
	write(t, filepath.Join(s.CloudInit, "user-data"), strings.Repeat("x", cloudinit.MaxData))
	expectReason(t, prepare(t, s, read), keeper.ReasonBootDataInvalid, "may have 4194304")
}

func TestWhereAMediumIs(t *testing.T) {
	for text, want := range map[string]whereabouts{
		"": nowhere, "installer.iso": inRepository, "linux/installer,1.iso": inRepository, "nbd:unix:/x": inRepository,
		"http://example.com/a.iso": inNetwork, "https://example.com:8443/a,b.iso": inNetwork,
	} {
		if got, err := place(text); err != nil || got != want {
			t.Errorf("%q is at %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"/dev/sda", "/etc/shadow", "../x", "a/../../x", "..", "file:///etc/shadow", "ssh://host/x", "nbd://host/x", "http://", "https:///x", "http://a\nb/", "HTTP://host/x",
	} {
		if where, err := place(text); err == nil {
			t.Errorf("%q is accepted, at %v", text, where)
		}
	}
}

// TestMediumIsAFileOfTheRepository, and no other file or device of the container.
func TestMediumIsAFileOfTheRepository(t *testing.T) {
	s := example(t)
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	write(t, filepath.Join(s.Images, "installer.iso"), "an image")
	for name, target := range map[string]string{"latest.iso": "installer.iso", "outside.iso": outside, "device.iso": "/dev/zero", "up.iso": "../" + filepath.Base(s.Devices) + "/system-disk"} {
		if err := os.Symlink(target, filepath.Join(s.Images, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.Images, "linux"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"installer.iso": true, "latest.iso": true, "outside.iso": false, "device.iso": false, "up.iso": false, "linux": false, "missing.iso": false,
	} {
		file, err := openImage(s.Images, name)
		if want && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !want && err == nil {
			t.Errorf("%s is opened", name)
		}
		if err != nil {
			continue
		}
		if content, err := io.ReadAll(file); err != nil || string(content) != "an image" {
			t.Errorf("%s has %q, %v", name, content, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestQEMUHasANetworkOnlyIfItNeedsOne of the pod: for the guest's packets, or for a medium.
func TestQEMUHasANetworkOnlyIfItNeedsOne(t *testing.T) {
	for _, test := range []struct {
		networks []vmconfig.Network
		media    []string
		offline  bool
	}{
		{nil, []string{""}, true},
		{[]vmconfig.Network{{Type: vmconfig.NetworkUser}}, []string{""}, false},
		{nil, []string{"https://example.com/a.iso"}, false},
		{[]vmconfig.Network{{Type: vmconfig.NetworkUser}, {Type: vmconfig.NetworkTap}}, []string{"https://example.com/a.iso"}, true},
		{[]vmconfig.Network{{Type: vmconfig.NetworkPod}}, []string{"https://example.com/a.iso"}, true},
	} {
		s := example(t)
		s.Machine.Networks = test.networks
		err := prepare(t, s, func(ctx context.Context, p *preparation) error {
			p.live.Media = test.media
			err := p.openNetwork(ctx)
			if foreign := errors.Is(p.reachable(), errForeign); foreign != (s.Machine.Has(vmconfig.NetworkTap) || s.Machine.Has(vmconfig.NetworkPod)) {
				t.Errorf("%+v: CDs with a URL: %v", test, p.reachable())
			}
			if p.Jail.Offline != test.offline {
				t.Errorf("%+v: offline is %v", test, p.Jail.Offline)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
