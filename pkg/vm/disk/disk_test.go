package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreateMakesASparseImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rootfs.img")
	if err := Create(path, 50<<30); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if size, taken := info.Size(), info.Sys().(*syscall.Stat_t).Blocks*512; size != 50<<30 || taken > 1<<20 {
		t.Errorf("the image has %d bytes and takes %d", size, taken)
	}
}

func TestCreateKeepsWhatThereIs(t *testing.T) {
	for name, c := range map[string]struct {
		before, size, want int64
		err                error
	}{
		"the same size stays":                  {before: 8 << 20, size: 8 << 20, want: 8 << 20},
		"a smaller one is grown":               {before: 8 << 20, size: 16 << 20, want: 16 << 20},
		"a larger one is refused":              {before: 16 << 20, size: 8 << 20, want: 16 << 20, err: ErrShrink},
		"one without a byte is grown":          {before: 0, size: 8 << 20, want: 8 << 20},
		"half a sector is rounded up":          {before: 512, size: 700, want: 1024},
		"one that was rounded up is not grown": {before: 1024, size: 700, want: 1024},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.img")
			data := bytes.Repeat([]byte("data"), int(min(c.before, 1<<20))/4)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, c.before); err != nil {
				t.Fatal(err)
			}
			if err := Create(path, c.size); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if size, err := Size(path); err != nil || size != c.want {
				t.Errorf("size %d, %v, want %d", size, err, c.want)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(got, data) {
				t.Errorf("the data is gone (%v)", err)
			}
		})
	}
}

func TestCreateRefusesWhatIsNoDisk(t *testing.T) {
	directory := t.TempDir()
	pipe := filepath.Join(directory, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		size int64
		err  string
	}{
		"a directory":            {path: directory, size: 1 << 20, err: "is a directory"},
		"a pipe":                 {path: pipe, size: 1 << 20, err: "is a named pipe"},
		"no directory for it":    {path: filepath.Join(directory, "missing/disk"), size: 1 << 20, err: "no such file"},
		"no size":                {path: filepath.Join(directory, "disk"), size: 0, err: "out of range"},
		"a size below zero":      {path: filepath.Join(directory, "disk"), size: -1, err: "out of range"},
		"a size beyond rounding": {path: filepath.Join(directory, "disk"), size: maxSize + 1, err: "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Create(c.path, c.size); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestCreateNamesTheFreeSpaceOfAFullFileSystem(t *testing.T) {
	directory := mountSmall(t, "1m")
	path := filepath.Join(directory, "disk.img")
	err := Create(path, 50<<30)
	var full *FullError
	if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v, want a FullError", err)
	}
	if full.Path != path || full.Needed != metadata(50<<30) || full.Free < 1 || full.Free > 1<<20 {
		t.Errorf("%+v", full)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an image is left behind: %v", err)
	}
}

func TestFormatNamesTheFreeSpaceOfAFullFileSystem(t *testing.T) {
	path := filepath.Join(mountSmall(t, "8m"), "disk.img")
	// This is smaller than Create would accept, and then grown by other means.
	if err := Create(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4<<40); err != nil {
		t.Fatal(err)
	}
	var full *FullError
	if err := Format(t.Context(), path, ""); !errors.As(err, &full) || full.Free > 8<<20 {
		t.Errorf("error %v, want a FullError", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestBlockDevicesAreTakenAsTheyAre(t *testing.T) {
	device := newDevice(t)
	if is, err := IsBlockDevice(device); !is || err != nil {
		t.Errorf("%t, %v", is, err)
	}
	if size, err := Size(device); size != imageSize || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if err := Create(device, imageSize); err != nil {
		t.Error(err)
	}
	if err := Create(device, imageSize+1); err == nil || !strings.Contains(err.Error(), "has to have") {
		t.Errorf("error %v", err)
	}
}

func TestFullErrorNamesWhatIsKnown(t *testing.T) {
	for want, err := range map[string]*FullError{
		"no space left for /a: 7 bytes are needed and 5 are free": {Path: "/a", Needed: 7, Free: 5},
		"no space left for /a: 5 bytes are free":                  {Path: "/a", Free: 5},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestSizeAndKindOfMissingPaths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	if _, err := Size(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Size: %v", err)
	}
	if _, err := IsBlockDevice(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("IsBlockDevice: %v", err)
	}
}

// mountSmall mounts a tmpfs that only this test sees: its thread has its own mount namespace and ends with the test.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if err := unix.Mount("tmpfs", directory, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(directory, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return directory
}
