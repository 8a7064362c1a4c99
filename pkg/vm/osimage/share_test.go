package osimage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// process is another process that gets an image and keeps it.
type process struct {
	command *exec.Cmd
	lines   *bufio.Scanner
	end     func()
}

func startProcess(t *testing.T, directory string, image Image) *process {
	t.Helper()
	text, err := json.Marshal(order{Directory: directory, Image: image})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), orderVariable+"="+string(text))
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(output)
	p.end = sync.OnceFunc(func() { _, _ = input.Close(), p.command.Wait() })
	t.Cleanup(p.end)
	return p
}

// await reads the process's output up to a line with the text.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	for p.lines.Scan() {
		t.Logf("process %d: %s", p.command.Process.Pid, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	t.Fatalf("the process ended and did not say %q", text)
	return ""
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end()
}

func TestProcessesAndGoroutinesShareOneDownload(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	directory := t.TempDir()
	// No request is served before all have been sent.
	everybody := make(chan struct{})
	m.change("/kernel", func(r *resource) {
		r.fault = func(http.ResponseWriter, *http.Request, int) bool { <-everybody; return false }
	})
	processes := []*process{startProcess(t, directory, image), startProcess(t, directory, image)}
	eventually(t, "one process downloads", func() bool { return len(m.asked()) > 0 })
	var group, waiting sync.WaitGroup
	waiting.Add(8)
	c := &Cache{Directory: directory, Local: []string{"/"}, timing: impatient, Progress: func(line string) {
		if !strings.HasPrefix(line, "own: waiting for process ") {
			t.Errorf("told %q", line)
		}
		waiting.Done()
	}}
	for range 8 {
		group.Go(func() {
			local, err := c.Get(t.Context(), image)
			if err != nil {
				t.Error(err)
				return
			}
			requireContent(t, local.Initrd, noise(2, initrdSize))
			if err := local.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	close(everybody)
	group.Wait()
	for _, p := range processes {
		if line := p.await(t, "got "); !strings.HasSuffix(line, "<nil>") {
			t.Error(line)
		}
	}
	if kernel, initrd := m.servedOf("/kernel"), m.servedOf("/initrd"); kernel != kernelSize || initrd != initrdSize {
		t.Errorf("served %d and %d bytes, want %d and %d", kernel, initrd, kernelSize, initrdSize)
	}
}

func TestDownloadOfAKilledProcessIsResumed(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	directory := t.TempDir()
	const half = 2 << 20
	m.change("/kernel", func(r *resource) {
		r.fault = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n > 1 {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(kernelSize))
			_, _ = w.Write(noise(1, kernelSize)[:half])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
	})
	p := startProcess(t, directory, image)
	p.await(t, "downloading")
	eventually(t, "half of it is stored", func() bool {
		left, err := filepath.Glob(filepath.Join(directory, "*", "kernel.part"))
		if err != nil || len(left) != 1 {
			return false
		}
		info, err := os.Stat(left[0])
		return err == nil && info.Size() == half
	})
	p.kill(t)
	c, lines := newCache(t, directory)
	requireContent(t, get(t, c, image).Kernel, noise(1, kernelSize))
	if diff := cmp.Diff([]string{"", fmt.Sprintf("bytes=%d-", half)}, rangesOf(m, "/kernel")); diff != "" {
		t.Errorf("requests: %s", diff)
	}
	if served := m.servedOf("/kernel"); served != kernelSize {
		t.Errorf("served %d bytes, want %d", served, kernelSize)
	}
	if !lines.has("resuming at 2.0 of 3.0 MiB") {
		t.Errorf("told %q", lines.lines)
	}
}

// TestProcessesThatAreKilledAtAnyMomentLeaveNothingBroken kills one process after the other, each a bit later.
func TestProcessesThatAreKilledAtAnyMomentLeaveNothingBroken(t *testing.T) {
	const step = 700 << 10
	m := newMirror(t)
	image := m.image("own")
	directory := t.TempDir()
	for limit := int64(step); limit < kernelSize+initrdSize; limit += step {
		reached := make(chan struct{})
		reach := sync.OnceFunc(func() { close(reached) })
		m.mu.Lock()
		m.onServed = func(total int64) {
			if total >= limit {
				reach()
			}
		}
		m.mu.Unlock()
		p := startProcess(t, directory, image)
		<-reached
		p.kill(t)
	}
	c, _ := newCache(t, directory)
	local := get(t, c, image)
	requireContent(t, local.Kernel, noise(1, kernelSize))
	requireContent(t, local.Initrd, noise(2, initrdSize))
	if left := leftovers(t, directory); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if n := len(m.asked()); n < 5 {
		t.Errorf("%d requests: the processes were not killed in time, this test sees nothing", n)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	directory := t.TempDir()
	m.change("/kernel", func(r *resource) {
		r.fault = func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true }
	})
	downloading, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		c := &Cache{Directory: directory, Local: []string{"/"}, timing: impatient}
		_, err := c.Get(downloading, image)
		ended <- err
	}()
	eventually(t, "the first one downloads", func() bool { return len(m.asked()) > 0 })
	over := errors.New("over")
	waiting, cancel := context.WithCancelCause(t.Context())
	c := &Cache{Directory: directory, Local: []string{"/"}, timing: impatient, Progress: func(string) { cancel(over) }}
	if _, err := c.Get(waiting, image); !errors.Is(err, over) {
		t.Errorf("error %v, want %v", err, over)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
