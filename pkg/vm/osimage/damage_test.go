package osimage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

func TestDamagedFilesRepairThemselves(t *testing.T) {
	for name, c := range map[string]struct {
		damage   func(t *testing.T, l Local)
		requests []string
	}{
		"nothing happened": {damage: func(*testing.T, Local) {}},
		"a file was cut short": {
			damage:   func(t *testing.T, l Local) { try(t, os.Truncate(l.Initrd, 1000)) },
			requests: []string{"/initrd"},
		},
		"a byte changed": {damage: func(t *testing.T, l Local) { flip(t, l.Kernel) }, requests: []string{"/kernel"}},
		"a byte changed and the time was set back": {
			damage: func(t *testing.T, l Local) {
				info, err := os.Stat(l.Kernel)
				try(t, err)
				flip(t, l.Kernel)
				try(t, os.Chtimes(l.Kernel, info.ModTime(), info.ModTime()))
			},
			requests: []string{"/kernel"},
		},
		"a file was replaced by one of the same size": {
			damage: func(t *testing.T, l Local) {
				try(t, os.Remove(l.Kernel))
				try(t, os.WriteFile(l.Kernel, noise(8, kernelSize), 0o600))
			},
			requests: []string{"/kernel"},
		},
		"a file is gone":          {damage: func(t *testing.T, l Local) { try(t, os.Remove(l.Initrd)) }, requests: []string{"/initrd"}},
		"a file was only touched": {damage: func(t *testing.T, l Local) { try(t, os.Chtimes(l.Kernel, now, now)) }},
		"a file was copied over itself": {
			damage: func(t *testing.T, l Local) {
				try(t, os.WriteFile(l.Kernel+".copy", noise(1, kernelSize), 0o600))
				try(t, os.Rename(l.Kernel+".copy", l.Kernel))
			},
		},
		"the manifest is gone": {
			damage:   func(t *testing.T, l Local) { try(t, os.Remove(manifestOf(l))) },
			requests: []string{"/kernel", "/initrd"},
		},
		"the manifest is empty, as after a loss of power": {
			damage:   func(t *testing.T, l Local) { try(t, os.Truncate(manifestOf(l), 0)) },
			requests: []string{"/kernel", "/initrd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			cache, _ := newCache(t, t.TempDir())
			local := get(t, cache, image)
			m.asked()
			c.damage(t, local)
			for _, requests := range [][]string{c.requests, nil} {
				again := get(t, cache, image)
				requireContent(t, again.Kernel, noise(1, kernelSize))
				requireContent(t, again.Initrd, noise(2, initrdSize))
				if diff := cmp.Diff(requests, m.asked()); diff != "" {
					t.Errorf("requests: %s", diff)
				}
			}
		})
	}
}

func manifestOf(l Local) string { return filepath.Join(filepath.Dir(l.Kernel), manifestName) }

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes a byte in place.
func flip(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	try(t, err)
	var b [1]byte
	_, err = file.ReadAt(b[:], 100)
	try(t, err)
	b[0]++
	_, err = file.WriteAt(b[:], 100)
	try(t, errors.Join(err, file.Close()))
}

// TestRepairLeavesTheFilesOfRunningMachinesAlone: running machines keep the file that they opened.
func TestRepairLeavesTheFilesOfRunningMachinesAlone(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	c, _ := newCache(t, t.TempDir())
	local := get(t, c, image)
	open, err := os.Open(local.Kernel)
	try(t, err)
	defer open.Close()
	flip(t, local.Kernel)
	get(t, c, image)
	before, err := open.Stat()
	try(t, err)
	after, err := os.Stat(local.Kernel)
	try(t, err)
	if os.SameFile(before, after) {
		t.Error("the file was overwritten in place")
	}
}

func TestFilesOfTheHostAreUsedInPlace(t *testing.T) {
	directory := t.TempDir()
	kernel, initrd := filepath.Join(directory, "vmlinuz"), filepath.Join(directory, "initrd")
	try(t, os.WriteFile(kernel, noise(1, 1000), 0o400))
	try(t, os.WriteFile(initrd, noise(2, 1000), 0o400))
	signer := newSigner(t, day(-1), 0)
	try(t, os.WriteFile(initrd+".sig", sign(t, signer, now, noise(2, 1000)), 0o400))
	image := Image{
		Name:   "local",
		Kernel: File{URL: "file://" + kernel, SHA256: sumOf(noise(1, 1000))},
		Initrd: File{URL: "file://" + initrd, SignatureURL: "file://" + initrd + ".sig"},
	}
	before := stamps(t, kernel, initrd)
	c, lines := newCache(t, t.TempDir())
	c.Keys = ring(t, signer)
	local := get(t, c, image)
	if local.Kernel != kernel || local.Initrd != initrd {
		t.Errorf("%+v", local)
	}
	get(t, c, image)
	if n := strings.Count(strings.Join(lines.lines, "\n"), "verifying"); n != 2 {
		t.Errorf("verified %d times, want 2: %q", n, lines.lines)
	}
	if diff := cmp.Diff(before, stamps(t, kernel, initrd)); diff != "" {
		t.Errorf("changed: %s", diff)
	}

	try(t, os.Chmod(initrd, 0o600))
	flip(t, initrd)
	changed := stamps(t, initrd)
	var mismatch *MismatchError
	if _, err := c.Get(t.Context(), image); !errors.As(err, &mismatch) || mismatch.File != "file://"+initrd {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(changed, stamps(t, initrd)); diff != "" {
		t.Errorf("changed: %s", diff)
	}
}

func stamps(t *testing.T, paths ...string) []slots.Stamp {
	t.Helper()
	var all []slots.Stamp
	for _, path := range paths {
		s, err := slots.StampOf(path)
		try(t, err)
		all = append(all, s)
	}
	return all
}

func TestFilesOfTheHostThatCannotBeUsed(t *testing.T) {
	directory := t.TempDir()
	for name, c := range map[string]struct{ path, want string }{
		"missing":     {path: filepath.Join(directory, "missing"), want: "no such file"},
		"a directory": {path: directory, want: "no regular file"},
		"a device":    {path: "/dev/zero", want: "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			cache, _ := newCache(t, t.TempDir())
			_, err := cache.Get(t.Context(), Image{Name: "local", Kernel: File{URL: "file://" + c.path}, Initrd: File{URL: "file://" + c.path}})
			if err == nil || !strings.Contains(err.Error(), "kernel: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestUnverifiedFileOfTheHostMayChange: a file without a checksum may be changed by its owner.
func TestUnverifiedFileOfTheHostMayChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmlinuz")
	try(t, os.WriteFile(path, noise(1, 1000), 0o600))
	image := Image{Name: "local", Kernel: File{URL: "file://" + path}, Initrd: File{URL: "file://" + path}}
	c, _ := newCache(t, t.TempDir())
	get(t, c, image)
	flip(t, path)
	get(t, c, image)
}

func TestReleaseMayBeCalledMoreThanOnce(t *testing.T) {
	m := newMirror(t)
	c, _ := newCache(t, t.TempDir())
	local := get(t, c, m.image("own"))
	try(t, errors.Join(local.Release(), local.Release(), Local{}.Release()))
}

func TestStampSeesEveryKindOfChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	try(t, os.WriteFile(path, []byte("a"), 0o600))
	before := stamps(t, path)[0]
	// The clock of file systems may have a resolution of some milliseconds.
	eventually(t, "the clock of the file system moved on", func() bool {
		try(t, os.WriteFile(path, []byte("b"), 0o600))
		return stamps(t, path)[0].Modified != before.Modified
	})
	after := stamps(t, path)[0]
	times := []syscall.Timespec{syscall.NsecToTimespec(before.Modified), syscall.NsecToTimespec(before.Modified)}
	try(t, syscall.UtimesNano(path, times))
	forged := stamps(t, path)[0]
	if forged.Modified != before.Modified || forged.Changed == before.Changed || after.Inode != before.Inode {
		t.Errorf("before %+v, after %+v, forged %+v", before, after, forged)
	}
	if time.Duration(forged.Changed-before.Changed) < 0 {
		t.Error("the change time went back")
	}
}
