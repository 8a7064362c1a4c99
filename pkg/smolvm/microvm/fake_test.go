package microvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// fakeKeepers stand for the processes of machines: they have no QEMU and no guest. They hold the real locks, read the
// real plans, and live on when a Manager is abandoned, as processes do. integration/suites/contract runs the real ones.
type fakeKeepers struct {
	mu      sync.Mutex
	running map[string]*fakeProcess
	// started counts the processes that were ever started, by directory.
	started map[string]int
	// kills counts the processes that were killed.
	kills int
	// next is how the next process behaves.
	next behavior
}

// behavior is what a process does.
type behavior struct {
	// fails is how it ends at once.
	fails *instance.End
	// dies says that it ends at once, without a word.
	dies bool
	// silent says that its guest never answers.
	silent bool
	// late is how long it takes until it answers and can be found; its parent's lock is held from the beginning.
	late time.Duration
	// slow is how long it takes to answer.
	slow time.Duration
	// stubborn says that it does not end when it is asked to, and immortal that it cannot even be killed.
	stubborn, immortal bool
}

type fakeProcess struct {
	behavior
	lock  *os.File
	since time.Time
	ended chan struct{}
	ready bool
	// mute says that it no longer answers on its socket.
	mute bool
}

func newFakeKeepers() *fakeKeepers {
	return &fakeKeepers{running: map[string]*fakeProcess{}, started: map[string]int{}}
}

func (f *fakeKeepers) Start(directory string, lock *disk.Lock) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started[directory]++
	if _, err := instance.ReadPlan(directory); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(directory, instance.EndName))
	p := &fakeProcess{behavior: f.next, ended: make(chan struct{}), ready: !f.next.silent, since: time.Now()}
	// A child that inherits the file holds the lock together with its parent, as this copy does.
	number, err := unix.Dup(int(lock.File().Fd()))
	if err != nil {
		return nil, err
	}
	p.lock = os.NewFile(uintptr(number), "lock")
	if p.fails != nil || p.dies {
		if p.fails != nil {
			writeEnd(directory, *p.fails)
		}
		_ = p.lock.Close()
		close(p.ended)
		return p.ended, nil
	}
	f.running[directory] = p
	return p.ended, nil
}

func writeEnd(directory string, end instance.End) {
	text, _ := json.Marshal(end)
	_ = os.WriteFile(filepath.Join(directory, instance.EndName), text, 0o600)
}

func (f *fakeKeepers) Status(ctx context.Context, directory string) (instance.Status, error) {
	f.mu.Lock()
	p := f.running[directory]
	f.mu.Unlock()
	if p == nil || p.mute || !p.here() {
		return instance.Status{}, errors.New("connection refused")
	}
	select {
	case <-ctx.Done():
		return instance.Status{}, ctx.Err()
	case <-time.After(p.slow):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := instance.Status{Status: keeper.Status{State: keeper.StateRunning, PID: os.Getpid(), Accelerator: "tcg"}}
	s.Agent = instance.AgentStatus{Ready: p.ready, Answers: p.ready && !p.silent, Guest: agentwire.Status{Workload: agentwire.WorkloadRunning}}
	return s, nil
}

func (f *fakeKeepers) Stop(_ context.Context, directory string) error {
	f.mu.Lock()
	p := f.running[directory]
	f.mu.Unlock()
	if p == nil || p.mute || !p.here() {
		return errors.New("connection refused")
	}
	if !p.stubborn {
		f.end(directory, instance.End{Reason: keeper.ReasonPoweredDown, At: time.Now()})
	}
	return nil
}

func (f *fakeKeepers) Kill(_ context.Context, directory string) error {
	f.mu.Lock()
	p := f.running[directory]
	f.mu.Unlock()
	switch {
	case p == nil || !p.here():
		return nil
	case p.immortal:
		return errors.New("operation not permitted")
	}
	f.mu.Lock()
	f.kills++
	f.mu.Unlock()
	f.vanish(directory)
	return nil
}

func (f *fakeKeepers) Alive(directory string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.running[directory]
	return p != nil && p.here(), nil
}

// here says that the process has claimed its machine.
func (p *fakeProcess) here() bool { return time.Since(p.since) >= p.late }

func (f *fakeKeepers) Reach(directory string) instance.Client {
	return instance.Client{Socket: filepath.Join(directory, "no.sock")}
}

func (f *fakeKeepers) Clean(string) error { return nil }

// end ends a process, which says how.
func (f *fakeKeepers) end(directory string, end instance.End) {
	writeEnd(directory, end)
	f.vanish(directory)
}

// vanish ends a process as SIGKILL or a power cut does.
func (f *fakeKeepers) vanish(directory string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.running[directory]; p != nil {
		_ = p.lock.Close()
		close(p.ended)
		delete(f.running, directory)
	}
}

func (f *fakeKeepers) alive(directory string) *fakeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[directory]
}

func (f *fakeKeepers) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running)
}

// fakeImages stand for a cache, and for a registry that has every image.
type fakeImages struct {
	err error
	// digest is what every tag means.
	digest string
	// hangs says that the registry does not answer.
	hangs bool
	// asked are the references that the registry was asked for.
	asked []string
	cache map[string]bool
	// added is the last image that was made of a file, with so many layers, for which there is a directory.
	added   ociimage.Local
	layers  int
	scratch string
}

func (f *fakeImages) Get(ctx context.Context, reference string, _ *authn.AuthConfig) (ociimage.Image, error) {
	f.asked = append(f.asked, reference)
	if f.hangs {
		<-ctx.Done()
		return ociimage.Image{}, context.Cause(ctx)
	}
	if f.err != nil {
		return ociimage.Image{}, f.err
	}
	digest := cmp.Or(f.digest, "sha256:1234")
	if _, by, ok := strings.Cut(reference, "@"); ok {
		digest = by
	}
	image := ociimage.Image{Digest: digest}
	if !f.cache[digest] {
		image.Pulled = pullTime
	}
	f.cache[digest] = true
	return image, nil
}

// pullTime is how long an image takes that is not in the cache.
const pullTime = 3 * time.Second

func (f *fakeImages) Add(ctx context.Context, local ociimage.Local) (ociimage.Image, error) {
	f.asked = append(f.asked, local.Reference)
	if f.err != nil {
		return ociimage.Image{}, f.err
	}
	layers, release, err := local.Layers(ctx, f.scratch, ociimage.DefaultLimits)
	if err != nil {
		return ociimage.Image{}, err
	}
	f.added, f.layers = local, len(layers)
	f.cache[local.Digest] = true
	return ociimage.Image{Digest: local.Digest}, release()
}

func (f *fakeImages) Open(digest string) (ociimage.Image, error) {
	if !f.cache[digest] {
		return ociimage.Image{}, fs.ErrNotExist
	}
	return ociimage.Image{Digest: digest}, nil
}

// node is a host with its state, on which Managers come and go.
type node struct {
	t       *testing.T
	state   string
	keepers *fakeKeepers
	images  *fakeImages
	meter   Meter
	// ports are what the next server publishes.
	ports PortRanges
}

var allPorts = PortRanges{{First: 1, Last: 65535}}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, state: t.TempDir(), keepers: newFakeKeepers(), images: &fakeImages{cache: map[string]bool{}, scratch: t.TempDir()}, ports: allPorts}
	t.Cleanup(func() {
		for directory := range n.keepers.running {
			n.keepers.vanish(directory)
		}
	})
	return n
}

// open starts a server.
func (n *node) open() *Manager {
	n.t.Helper()
	m, err := Open(Settings{
		State: n.state, Run: filepath.Join(n.state, "run"), Images: n.state, Artifacts: n.artifacts(), Publish: netip.MustParseAddr("127.0.0.1"), PublishPorts: n.ports, Egress: egress.Policy{Floor: egress.FloorStrict},
		Host:  instance.Host{QEMU: "qemu", Acceleration: qemu.ModeTCG, AllowEmulation: true},
		Meter: n.meter,
	}, n.images, n.keepers, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = m.Close() })
	return m
}

func (n *node) artifacts() string { return filepath.Join(n.state, "artifacts") }

func (n *node) directory(name string) string {
	return filepath.Join(n.state, "machines", hashOf(name))
}

// request is a small machine.
func request(name string) api.CreateRequest {
	gb := int64(1)
	return api.CreateRequest{Name: name, Image: "example.com/web:1", StorageGB: &gb, OverlayGB: &gb, Ports: []api.Port{{Host: 18080, Guest: 80}}}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
