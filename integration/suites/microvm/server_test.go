package microvm_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// server is smolvm as it runs on a node, and a registry.
type server struct {
	directory string
	client    *api.Client
	registry  *ocifixture.Registry
	asked     *asked
}

// serve starts a server that has no images, and ends it with its machines at the end of the test.
func serve(b testing.TB) *server {
	b.Helper()
	directory, err := os.MkdirTemp("/tmp", "smolvm") //nolint:usetesting // paths of sockets are short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(directory) })
	s := &server{directory: directory, asked: &asked{blobs: map[string]int{}}}
	if err := os.Chmod(directory, 0o755); err != nil { // QEMU has its own user
		b.Fatal(err)
	}
	s.serveImages(b)
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", s.file("smolvm"), "../../../smolvm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if s.client, err = api.NewClient("unix://"+s.file("smolvm.sock"), api.Options{}); err != nil {
		b.Fatal(err)
	}
	s.start(b)
	return s
}

func (s *server) file(name string) string { return filepath.Join(s.directory, name) }

func (s *server) serveImages(b testing.TB) {
	b.Helper()
	web, err := ocifixture.Web()
	if err != nil {
		b.Fatal(err)
	}
	if s.registry, err = ocifixture.Serve(map[string]v1.Image{"library/web:1": web}, s.asked.count); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.registry.Close() })
	s.asked.forget() // what the image was pushed with
}

// start runs the server until the end of the test.
func (s *server) start(b testing.TB) {
	b.Helper()
	log, err := os.Create(s.file("log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	for _, name := range []string{"vmlinuz", "micro.cpio.gz"} {
		content, err := os.ReadFile(built(b, name))
		if err == nil {
			err = os.WriteFile(s.file(name), content, 0o644)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	command := exec.Command(s.file("smolvm"), "serve", "start", "--listen=unix://"+s.file("smolvm.sock"), "--state="+s.file("state"), "--run="+s.file("run"),
		"--kernel="+s.file("vmlinuz"), "--initrd="+s.file("micro.cpio.gz"), "--acceleration=tcg", "--allow-emulation",
		"--registry-mirror=docker.io="+s.registry.Host, "--registry-insecure="+s.registry.Host)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		s.deleteAll(b)
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	for deadline := time.Now().Add(ends); s.client.Ready(b.Context()) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.file("log"))
			b.Fatalf("the server does not answer: %s", text)
		}
	}
}

// deleteAll ends machines, which outlive the server.
func (s *server) deleteAll(b testing.TB) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ends)
	defer cancel()
	machines, err := s.client.List(ctx)
	if err != nil {
		b.Errorf("listing machines: %v", err)
	}
	for _, m := range machines {
		if err := s.client.Delete(ctx, m.Name); err != nil {
			b.Errorf("deleting a machine: %v", err)
		}
	}
}

// create creates a machine with the image web, and a port unless that is 0.
func (s *server) create(b testing.TB, name string, port uint16) {
	b.Helper()
	memory, size := int64(256), int64(1)
	request := api.CreateRequest{Name: name, Image: "web:1", MemoryMB: &memory, StorageGB: &size, OverlayGB: &size}
	if port != 0 {
		request.Network, request.Ports = true, []api.Port{{Host: port, Guest: ocifixture.WebPort}}
	}
	if _, err := s.client.Create(b.Context(), request); err != nil {
		b.Fatal(err)
	}
}

func (s *server) startMachine(b testing.TB, name string) api.Machine {
	b.Helper()
	m, err := s.client.Start(b.Context(), name, api.StartRequest{})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (s *server) stop(b testing.TB, name string) {
	b.Helper()
	if _, err := s.client.Stop(b.Context(), name); err != nil {
		b.Fatal(err)
	}
}

// asked counts what a registry is asked for.
type asked struct {
	mu        sync.Mutex
	manifests int
	// blobs are the downloads of each, and bytes are theirs.
	blobs map[string]int
	bytes int
}

func (a *asked) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manifests, a.bytes, a.blobs = 0, 0, map[string]int{}
}

func (a *asked) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%d manifest requests, %d blobs of %d bytes", a.manifests, len(a.blobs), a.bytes)
}

// most is how often the blob was downloaded that was downloaded most often.
func (a *asked) most() (most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.blobs {
		most = max(most, times)
	}
	return most
}

func (a *asked) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted := &counter{ResponseWriter: w}
		next.ServeHTTP(counted, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			a.manifests++
		case strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet:
			a.blobs[r.URL.Path]++
			a.bytes += counted.bytes
		}
	})
}

// counter counts the bytes of an answer.
type counter struct {
	http.ResponseWriter

	bytes int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += n
	return n, err
}
