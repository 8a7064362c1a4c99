package ociimage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// order is what another process is ordered to get.
type order struct {
	Directory, Reference string
	Insecure             []string
	// Small is a file system without room.
	Small bool
}

const orderVariable = "OCIIMAGE_TEST_ORDER"

// TestMain lets the test binary act as a process that gets an image, says so, and keeps it until its input ends.
func TestMain(m *testing.M) {
	text := os.Getenv(orderVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	c := &Cache{Directory: o.Directory, Progress: func(line string) { fmt.Println(line) }, timing: impatient}
	c.Registries = Registries{Insecure: o.Insecure, Keychain: authn.NewMultiKeychain()}
	if o.Small {
		if err := getSmall(c, o.Reference); err != nil {
			panic(err)
		}
		return
	}
	got, err := c.Get(context.Background(), o.Reference, nil)
	fmt.Println("got", got.Digest, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = got.Release()
}

// process is another process that gets an image and keeps it.
type process struct {
	command *exec.Cmd
	lines   *bufio.Scanner
	end     func()
}

func startProcess(t *testing.T, c *Cache, reference string) *process {
	t.Helper()
	return begin(t, order{Directory: c.Directory, Reference: reference, Insecure: c.Registries.Insecure}, func(*syscall.SysProcAttr) {})
}

// begin starts a process, with attributes.
func begin(t *testing.T, o order, with func(*syscall.SysProcAttr)) *process {
	t.Helper()
	text, err := json.Marshal(o)
	try(t, err)
	p := &process{command: exec.Command(os.Args[0])}
	p.command.SysProcAttr = &syscall.SysProcAttr{}
	with(p.command.SysProcAttr)
	p.command.Env = append(os.Environ(), orderVariable+"="+string(text))
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	try(t, err)
	output, err := p.command.StdoutPipe()
	try(t, err)
	try(t, p.command.Start())
	p.lines = bufio.NewScanner(output)
	p.end = sync.OnceFunc(func() { _, _ = input.Close(), p.command.Wait() })
	t.Cleanup(p.end)
	return p
}

// await reads the process's output up to a line with the text.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	t.Fatalf("the process ended and did not say %q", text)
	return ""
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	try(t, p.command.Process.Kill())
	p.end()
}

// TestProcessesAndGoroutinesShareDownloads of one image, and of a layer of another one.
func TestProcessesAndGoroutinesShareDownloads(t *testing.T) {
	needs(t, packer, "unsquashfs")
	r := newRegistry(t)
	i := simple(t)
	r.push("web", i, "v1")
	own := gzipped(archiveOf(t, "own=1"))
	r.push("web", image{layers: []part{i.layers[0], own}}, "other")
	// No blob is served before all have asked for their manifests.
	everybody := make(chan struct{})
	wait := func(http.ResponseWriter, *http.Request, int) bool { <-everybody; return false }
	r.inject(i.blobPath("web", 0), wait)
	c, _ := newCache(t, t.TempDir(), r)
	processes := []*process{startProcess(t, c, r.host+"/web:v1"), startProcess(t, c, r.host+"/web:other")}
	var group sync.WaitGroup
	for n := range 6 {
		group.Go(func() {
			got, err := c.Get(t.Context(), r.host+"/web:"+[]string{"v1", "other"}[n%2], nil)
			if err != nil {
				t.Error(err)
				return
			}
			requireFile(t, got, "data", noise(1, 300<<10))
			if err := got.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all know their manifests", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.asked["/v2/web/manifests/v1"]+r.asked["/v2/web/manifests/other"] == 8
	})
	close(everybody)
	group.Wait()
	for _, p := range processes {
		if line := p.await(t, "got "); !strings.HasSuffix(line, "<nil>") {
			t.Error(line)
		}
	}
	blobs := map[string]int{}
	for _, line := range r.log() {
		if strings.Contains(line, "/blobs/") {
			blobs[line]++
		}
	}
	for line, n := range blobs {
		if n != 1 {
			t.Errorf("%d times %s", n, line)
		}
	}
	if len(blobs) != 5 { // two configurations, one layer of both, and one of each
		t.Errorf("requests: %v", blobs)
	}
}

const month = 30 * 24 * time.Hour

// age makes all slots look as if they were last used a month and an hour ago.
func age(t *testing.T, c *Cache) {
	t.Helper()
	then := time.Now().Add(-month - time.Hour)
	for _, pattern := range []string{"*/*", "*/*/" + slots.UseName} {
		paths, err := filepath.Glob(filepath.Join(c.Directory, pattern))
		try(t, err)
		for _, path := range paths {
			try(t, os.Chtimes(path, then, then))
		}
	}
}

func slotsOf(t *testing.T, c *Cache, kind string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.Directory, kind))
	try(t, err)
	return len(entries)
}

func TestPrune(t *testing.T) {
	needs(t, packer)
	for name, test := range map[string]struct {
		prepare       func(t *testing.T, c *Cache, reference string)
		keep          time.Duration
		images, blobs int
	}{
		"old ones go":                       {func(t *testing.T, c *Cache, _ string) { age(t, c) }, month, 0, 0},
		"fresh ones stay":                   {func(*testing.T, *Cache, string) {}, month, 1, 3},
		"fresh ones go if there is no room": {func(*testing.T, *Cache, string) {}, 0, 0, 0},
		"one that is used stays":            {func(t *testing.T, c *Cache, reference string) { get(t, c, reference); age(t, c) }, month, 1, 0},
		"one that a process uses stays": {func(t *testing.T, c *Cache, reference string) {
			startProcess(t, c, reference).await(t, "got ")
			age(t, c)
		}, month, 1, 0},
		"one that was used lately stays": {func(t *testing.T, c *Cache, reference string) {
			age(t, c)
			got, err := c.Get(t.Context(), reference, nil)
			try(t, errors.Join(err, got.Release()))
		}, month, 1, 0},
		"one that is being made stays": {func(t *testing.T, c *Cache, _ string) {
			found, err := filepath.Glob(filepath.Join(c.Directory, imagesName, "*"))
			try(t, err)
			lock, err := slots.Lock(found[0])
			try(t, err)
			t.Cleanup(func() { _ = lock.Close() })
			age(t, c)
		}, month, 1, 0},
		"old parts go": {func(t *testing.T, c *Cache, _ string) {
			found, err := filepath.Glob(filepath.Join(c.Directory, blobsName, "*", slots.UseName))
			try(t, err)
			for _, use := range found {
				try(t, os.Rename(filepath.Join(filepath.Dir(use), blobName), filepath.Join(filepath.Dir(use), partName)))
				try(t, os.Remove(use))
			}
			then := time.Now().Add(-2 * time.Hour)
			for _, use := range found[1:] {
				try(t, os.Chtimes(filepath.Dir(use), then, then))
			}
		}, month, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			r.push("web", simple(t), "v1")
			c, _ := newCache(t, t.TempDir(), r)
			got, err := c.Get(t.Context(), r.host+"/web:v1", nil)
			try(t, errors.Join(err, got.Release()))
			test.prepare(t, c, r.host+"/web:v1")
			try(t, os.WriteFile(filepath.Join(c.Directory, imagesName, "notes"), nil, 0o600))
			try(t, c.Prune(t.Context(), test.keep))
			if images, blobs := slotsOf(t, c, imagesName)-1, slotsOf(t, c, blobsName); images != test.images || blobs != test.blobs {
				t.Errorf("%d images and %d blobs are left, want %d and %d", images, blobs, test.images, test.blobs)
			}
			get(t, c, r.host+"/web:v1")
		})
	}
}

// TestPruneAndGetAtTheSameTime: every image that Get returned stays until it is released.
func TestPruneAndGetAtTheSameTime(t *testing.T) {
	needs(t, packer, "unsquashfs")
	r := newRegistry(t)
	references := make([]string, 2)
	for n, i := range []image{simple(t), {layers: []part{simple(t).layers[0]}}} {
		tag := fmt.Sprint("v", n)
		r.push("web", i, tag)
		references[n] = r.host + "/web:" + tag
	}
	directory := t.TempDir()
	var getting, pruning sync.WaitGroup
	var pruned atomic.Int32
	done := make(chan struct{})
	deadline := time.Now().Add(time.Minute)
	for n := range 4 {
		getting.Go(func() {
			c, _ := newCache(t, directory, r)
			for round := 0; (round < 8 || pruned.Load() < 6) && time.Now().Before(deadline); round++ {
				got, err := c.Get(t.Context(), references[(n+round)%2], nil)
				if err != nil {
					t.Error(err)
					return
				}
				requireFile(t, got, "data", noise(1, 300<<10))
				if err := got.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		pruning.Go(func() {
			c := &Cache{Directory: directory, Progress: func(string) { pruned.Add(1) }}
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
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
	if n := pruned.Load(); n < 6 {
		t.Errorf("pruned %d times within a minute, want 6 at least", n)
	}
}
