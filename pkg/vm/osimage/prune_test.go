package osimage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

const month = 30 * 24 * time.Hour

// age makes an image look as if it was last used a month and an hour ago.
func age(t *testing.T, directory string) {
	t.Helper()
	then := now.Add(-month - time.Hour)
	for _, path := range []string{filepath.Join(directory, slots.UseName), directory} {
		if err := os.Chtimes(path, then, then); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestPrune(t *testing.T) {
	for name, c := range map[string]struct {
		// prepare is called with an image that was released and not used for a month.
		prepare func(t *testing.T, c *Cache, image Image, directory string)
		kept    bool
	}{
		"an old image is removed": {},
		"one that was used lately is kept": {
			prepare: func(t *testing.T, c *Cache, image Image, _ string) {
				local, err := c.Get(t.Context(), image)
				try(t, errors.Join(err, local.Release()))
			},
			kept: true,
		},
		"one that is in use is kept": {
			prepare: func(t *testing.T, c *Cache, image Image, directory string) { get(t, c, image); age(t, directory) },
			kept:    true,
		},
		"one that another process uses is kept": {
			prepare: func(t *testing.T, c *Cache, image Image, directory string) {
				startProcess(t, c.Directory, image).await(t, "got ")
				age(t, directory)
			},
			kept: true,
		},
		"one that a killed process used is removed": {
			prepare: func(t *testing.T, c *Cache, image Image, directory string) {
				p := startProcess(t, c.Directory, image)
				p.await(t, "got ")
				p.kill(t)
				age(t, directory)
			},
		},
		"one that a process gets is kept": {
			prepare: func(t *testing.T, _ *Cache, _ Image, directory string) {
				lock, err := slots.Lock(directory)
				try(t, err)
				t.Cleanup(func() { _ = lock.Close() })
			},
			kept: true,
		},
		"a broken download is removed": {
			prepare: func(t *testing.T, _ *Cache, _ Image, directory string) {
				for _, name := range []string{slots.UseName, manifestName, "kernel", "initrd"} {
					try(t, os.Remove(filepath.Join(directory, name)))
				}
				try(t, os.WriteFile(filepath.Join(directory, "kernel.part"), nil, 0o600))
				age(t, directory)
			},
		},
		"a download that broke off lately is kept": {
			prepare: func(t *testing.T, _ *Cache, _ Image, directory string) {
				try(t, os.Remove(filepath.Join(directory, slots.UseName)))
			},
			kept: true,
		},
		"what is not an image is kept": {
			prepare: func(t *testing.T, _ *Cache, _ Image, directory string) {
				try(t, os.Remove(filepath.Join(directory, slots.LockName)))
				age(t, directory)
			},
			kept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			cache, _ := newCache(t, t.TempDir())
			local, err := cache.Get(t.Context(), image)
			try(t, errors.Join(err, local.Release()))
			directory := filepath.Dir(local.Kernel)
			age(t, directory)
			if c.prepare != nil {
				c.prepare(t, cache, image, directory)
			}
			try(t, cache.Prune(t.Context(), month))
			if kept := exists(directory); kept != c.kept {
				t.Errorf("kept: %t, want %t", kept, c.kept)
			}
			if !c.kept {
				requireContent(t, get(t, cache, image).Kernel, noise(1, kernelSize))
			}
		})
	}
}

func TestPruneTouchesNothingOfOthers(t *testing.T) {
	directory := t.TempDir()
	for _, path := range []string{"accelerator.json", "v2/3975.2.0/done.lock", "a-0123456789abcdef.txt", "b-0123456789abcdef/data"} {
		path = filepath.Join(directory, path)
		try(t, os.MkdirAll(filepath.Dir(path), 0o700))
		try(t, os.WriteFile(path, nil, 0o600))
		age(t, filepath.Dir(path))
	}
	leftover := filepath.Join(directory, "own-0123456789abcdef"+slots.Aside, "kernel")
	try(t, os.MkdirAll(leftover, 0o700))
	c, _ := newCache(t, directory)
	try(t, c.Prune(t.Context(), 0))
	entries, err := os.ReadDir(directory)
	try(t, err)
	if len(entries) != 4 || exists(leftover) {
		t.Errorf("left: %v", entries)
	}
	missing, _ := newCache(t, filepath.Join(directory, "missing"))
	try(t, missing.Prune(t.Context(), 0))
}

func TestPruneEndsWithItsContext(t *testing.T) {
	m := newMirror(t)
	c, _ := newCache(t, t.TempDir())
	local, err := c.Get(t.Context(), m.image("own"))
	try(t, errors.Join(err, local.Release()))
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if err := c.Prune(ctx, 0); !errors.Is(err, over) || !exists(local.Kernel) {
		t.Errorf("error %v", err)
	}
}

// TestPruneAndGetAtTheSameTime: every image that Get returned stays until it is released.
func TestPruneAndGetAtTheSameTime(t *testing.T) {
	m := newMirror(t)
	image := Image{Name: "own"}
	content := noise(1, 1000)
	image.Kernel = File{URL: m.put("/kernel", content), SHA256: sumOf(content)}
	image.Initrd = File{URL: m.put("/initrd", content), SHA256: sumOf(content)}
	directory := t.TempDir()
	var getting, pruning sync.WaitGroup
	var pruned atomic.Int32
	done := make(chan struct{})
	deadline := time.Now().Add(time.Minute)
	for range 4 {
		getting.Go(func() {
			c := &Cache{Directory: directory, Local: []string{"/"}, timing: impatient}
			for n := 0; (n < 25 || pruned.Load() < 3) && time.Now().Before(deadline); n++ {
				local, err := c.Get(t.Context(), image)
				if err != nil {
					t.Error(err)
					return
				}
				requireContent(t, local.Kernel, content)
				requireContent(t, local.Initrd, content)
				if err := local.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		pruning.Go(func() {
			c := &Cache{Directory: directory, Local: []string{"/"}, Progress: func(string) { pruned.Add(1) }}
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := c.Prune(t.Context(), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	getting.Wait()
	close(done)
	pruning.Wait()
	if n := pruned.Load(); n < 3 {
		t.Errorf("pruned %d times within a minute, want 3 at least", n)
	}
}
