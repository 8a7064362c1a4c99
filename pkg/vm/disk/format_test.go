package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

const imageSize = 64 << 20

func newImage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := Create(path, imageSize); err != nil {
		t.Fatal(err)
	}
	return path
}

// newDevice returns a loop device on an image.
func newDevice(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make block devices")
	}
	output, err := exec.Command("losetup", "--find", "--show", newImage(t)).Output()
	if err != nil {
		t.Skipf("there are no loop devices: %v", err)
	}
	device := strings.TrimSpace(string(output))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Error(err)
		}
	})
	return device
}

// TestDevicesAreOpenedDirectly: QEMU checks whether a descriptor has O_DIRECT.
func TestDevicesAreOpenedDirectly(t *testing.T) {
	device := newDevice(t)
	for name, test := range map[string]struct {
		open func() (*os.File, error)
		want bool
	}{
		"a device":             {func() (*os.File, error) { return OpenDevice(device) }, true},
		"a device as an image": {func() (*os.File, error) { return Open(device, imageSize) }, false},
	} {
		file, err := test.open()
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_DIRECT != 0 != test.want {
			t.Errorf("%s has the flags %#x (%v), O_DIRECT wanted: %t", name, flags, err, test.want)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

var kinds = map[string]func(*testing.T) string{"an image": newImage, "a block device": newDevice}

func identity(t *testing.T, path string) string {
	t.Helper()
	if output, err := exec.Command("e2fsck", "-fn", path).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck: %v\n%s", err, output)
	}
	output, err := exec.Command("blkid", "-p", "-o", "export", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

func TestFormatMakesAFileSystemOnce(t *testing.T) {
	for name, prepare := range kinds {
		t.Run(name, func(t *testing.T) {
			path := prepare(t)
			if err := Format(t.Context(), path, "ROOT"); err != nil {
				t.Fatal(err)
			}
			first := identity(t, path)
			if !strings.Contains(first, "TYPE=ext4") || !strings.Contains(first, "LABEL=ROOT") {
				t.Errorf("made %s", first)
			}
			if content, err := os.ReadFile(path); err != nil || bytes.Contains(content, mark) {
				t.Errorf("the mark is left behind (%v)", err)
			}
			if err := Format(t.Context(), path, "ROOT"); err != nil {
				t.Fatal(err)
			}
			if second := identity(t, path); second != first {
				t.Errorf("formatted again:\n%s\n%s", first, second)
			}
			if size, err := Size(path); err != nil || size != imageSize {
				t.Errorf("size %d, %v", size, err)
			}
		})
	}
}

func TestFormatLeavesDataAlone(t *testing.T) {
	for kind, prepare := range kinds {
		for name, offset := range map[string]int64{
			"in the first byte":                        0,
			"where LVM has its label":                  512,
			"where btrfs has its superblock":           64 << 10,
			"in the last byte":                         imageSize - 1,
			"in the middle, which an image is read to": imageSize/2 + 12345,
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				path := prepare(t)
				if kind != "an image" && strings.Contains(name, "an image") {
					return
				}
				write(t, path, offset, "x")
				before, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := Format(t.Context(), path, "ROOT"); !errors.Is(err, ErrHoldsData) {
					t.Errorf("error %v, want %v", err, ErrHoldsData)
				}
				if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
					t.Errorf("the data has changed (%v)", err)
				}
			})
		}
	}
}

func write(t *testing.T, path string, offset int64, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte(text), offset)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestFormatOverwritesZerosThatWereWritten(t *testing.T) {
	path := newImage(t)
	write(t, path, 4096, strings.Repeat("\x00", 3<<20))
	if err := Format(t.Context(), path, ""); err != nil {
		t.Fatal(err)
	}
	identity(t, path)
}

// TestNothingIsFormattedThroughALink: neither the image nor its replacement is opened through a link that an earlier
// machine may have created, and neither is a disk that is grown or created.
func TestNothingIsFormattedThroughALink(t *testing.T) {
	empty := bytes.Repeat([]byte{0}, imageSize)
	for name, do := range map[string]func(path string) error{
		"formatting":      func(path string) error { return Format(t.Context(), path, "") },
		"making":          func(path string) error { return Create(path, imageSize+4096) },
		"making an image": func(path string) error { return ImageOf(t.Context(), path, imageSize, t.TempDir()) },
	} {
		for kind, put := range map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link} {
			t.Run(name+" through a "+kind+" link", func(t *testing.T) {
				target, path := newImage(t), filepath.Join(t.TempDir(), "disk.img")
				link := path
				if name == "formatting" {
					// The formatted image is the operator's own; the file in which the format is prepared is not.
					link = path + ".formatting"
					if err := Create(path, imageSize); err != nil {
						t.Fatal(err)
					}
				}
				if err := put(target, link); err != nil {
					t.Skip("the two directories are on two file systems: ", err)
				}
				if err := do(path); name == "making" && !errors.Is(err, ownfile.ErrForeign) || name != "making" && err != nil {
					t.Errorf("it ended with %v", err)
				}
				if text, err := os.ReadFile(target); err != nil || !bytes.Equal(text, empty) {
					t.Errorf("what the link leads to has changed (%v)", err)
				}
			})
		}
	}
	path := newImage(t)
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink("disk.img", link); err != nil {
		t.Fatal(err)
	}
	if err := Format(t.Context(), link, ""); !errors.Is(err, ownfile.ErrForeign) {
		t.Errorf("a link to an image was formatted: %v", err)
	}
}

// TestInterruptedFormatIsDoneAgain replaces mkfs.ext4 by a program that leaves what a killed mke2fs leaves: it writes
// the superblock last.
func TestInterruptedFormatIsDoneAgain(t *testing.T) {
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Fatal(err)
	}
	for kind, prepare := range kinds {
		for when, script := range map[string]string{
			"at the beginning":            `printf junk | dd of="$last" seek=8192 bs=1 conv=notrunc,fsync 2>/dev/null`,
			"right before the superblock": mkfs + ` "$@" && dd if=/dev/zero of="$last" seek=1 bs=1024 count=1 conv=notrunc,fsync 2>/dev/null`,
		} {
			t.Run(kind+", "+when, func(t *testing.T) {
				path := prepare(t)
				t.Run("interrupted", func(t *testing.T) {
					useMkfs(t, `for last; do :; done; `+script+`; kill -9 $$`)
					if err := Format(t.Context(), path, "ROOT"); err == nil || !strings.Contains(err.Error(), "killed") {
						t.Errorf("error %v", err)
					}
				})
				if err := Format(t.Context(), path, "ROOT"); err != nil {
					t.Fatal(err)
				}
				identity(t, path)
			})
		}
	}
}

func TestFormatEndsWithItsContext(t *testing.T) {
	path := newImage(t)
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	useMkfs(t, "touch "+started+"; exec sleep 600")
	result := make(chan error, 1)
	go func() { result <- Format(ctx, path, "ROOT") }()
	eventually(t, "mkfs.ext4 runs", func() bool {
		_, err := os.Stat(started)
		return err == nil
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func useMkfs(t *testing.T, script string) {
	t.Helper()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "mkfs.ext4"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
}

func TestFormatRefuses(t *testing.T) {
	for name, c := range map[string]struct{ path, label, err string }{
		"a label that the superblock has no room for": {path: "disk", label: "seventeen letters", err: "more than 16 bytes"},
		"a missing disk":                   {path: filepath.Join(t.TempDir(), "missing"), err: "no such file"},
		"a directory":                      {path: t.TempDir(), err: "is a directory"},
		"a device that is no block device": {path: "/dev/null", err: "is a character device"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Format(t.Context(), c.path, c.label); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestFormatNamesAMissingProgram(t *testing.T) {
	path := newImage(t)
	t.Setenv("PATH", t.TempDir())
	if err := Format(t.Context(), path, ""); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "mkfs.ext4") {
		t.Errorf("error %v", err)
	}
}
