package osimage

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/mounttest"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// TestMachineHasTheCacheReadOnly: an image that an init container got is found, and everything else that the machine
// tries is refused.
func TestMachineHasTheCacheReadOnly(t *testing.T) {
	m := newMirror(t)
	c, _ := newCache(t, t.TempDir())
	image, other := m.image("own"), m.image("other")
	local, err := c.Get(t.Context(), image)
	try(t, errors.Join(err, local.Release()))
	old := filepath.Dir(local.Kernel)
	age(t, old)
	m.asked()
	mounttest.ReadOnly(t, c.Directory, func() {
		found, err := c.Get(t.Context(), image)
		if err != nil || found.Kernel != local.Kernel || found.Initrd != local.Initrd {
			t.Errorf("found %+v, error %v", found, err)
		}
		if err := os.WriteFile(found.Kernel, nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("the machine may write its image: error %v", err)
		}
		if _, err := c.Get(t.Context(), other); !errors.Is(err, syscall.EROFS) {
			t.Errorf("another image: error %v", err)
		}
		if err := c.Prune(t.Context(), 0); err != nil {
			t.Error(err)
		}
		// No other process removes the image while the machine uses it.
		done := make(chan error)
		go func() { done <- c.Prune(t.Context(), 0) }()
		if err := <-done; err != nil || !exists(found.Kernel) {
			t.Errorf("the image of a machine was pruned: error %v", err)
		}
		try(t, found.Release())
	})
	if requests := m.asked(); len(requests) > 0 {
		t.Errorf("the machine asked for %v", requests)
	}
	try(t, c.Prune(t.Context(), month))
	if exists(old) {
		t.Error("the image stays although no machine uses it")
	}
}

// TestImageThatIsNotWholeIsNotFound: then it is downloaded, or refused if the cache is read-only.
func TestImageThatIsNotWholeIsNotFound(t *testing.T) {
	for name, damage := range map[string]func(directory string) error{
		"a file is gone":            func(d string) error { return os.Remove(filepath.Join(d, "initrd")) },
		"a file was written to":     func(d string) error { return os.WriteFile(filepath.Join(d, "kernel"), noise(1, kernelSize), 0o600) },
		"only root may read a file": func(d string) error { return os.Chmod(filepath.Join(d, "kernel"), 0o600) },
		"a file is a link": func(d string) error {
			return errors.Join(os.Rename(filepath.Join(d, "kernel"), filepath.Join(d, "k")), os.Symlink("k", filepath.Join(d, "kernel")))
		},
		"only root may see the files":       func(d string) error { return os.Chmod(d, 0o750) },
		"the manifest is gone":              func(d string) error { return os.Remove(filepath.Join(d, manifestName)) },
		"another process is about to prune": func(d string) error { return lockForever(filepath.Join(d, slots.UseName)) },
		"the file of its users is new":      func(d string) error { return os.Remove(filepath.Join(d, slots.UseName)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			c, _ := newCache(t, t.TempDir())
			image := m.image("own")
			local, err := c.Get(t.Context(), image)
			try(t, errors.Join(err, local.Release()))
			if found, ok := c.find(image); !ok {
				t.Fatal("an image that is whole is not found")
			} else {
				try(t, found.Release())
			}
			try(t, damage(filepath.Dir(local.Kernel)))
			if _, ok := c.find(image); ok {
				t.Error("it is found nevertheless")
			}
			if name != "another process is about to prune" && name != "a file is a link" { // a link stays one
				get(t, c, image)
				if found, ok := c.find(image); !ok {
					t.Error("nor is it found when it was got again")
				} else {
					try(t, found.Release())
				}
			}
		})
	}
}

// lockForever holds the lock for pruning until the test binary ends.
func lockForever(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	kept = append(kept, file)
	return unix.Flock(int(file.Fd()), unix.LOCK_EX)
}

// kept are files that must not be closed by the garbage collector.
var kept []*os.File

// TestDownloadIsBounded: the author of a KVMConfig chooses where images come from, and must not be able to fill the
// host's disk.
func TestDownloadIsBounded(t *testing.T) {
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request, int) bool{
		"the server says how much there is": nil,
		"the server does not say": func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			for range 100 {
				if _, err := w.Write(noise(1, 1<<20)); err != nil {
					break
				}
				_ = http.NewResponseController(w).Flush()
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			c, _ := newCache(t, t.TempDir())
			c.MaxFile = kernelSize
			image := m.image("own")
			m.change("/initrd", func(r *resource) { r.fault = fault })
			_, err := c.Get(t.Context(), image)
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(kernelSize)) {
				t.Errorf("error %v", err)
			}
			if left := leftovers(t, c.Directory); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if asked := len(m.asked()); asked != 2 {
				t.Errorf("%d requests, want one for each file", asked)
			}
		})
	}
}
