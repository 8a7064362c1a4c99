package smolvmruntime

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// fakeBackend is what the fake says that it is.
const fakeBackend = "fake"

// fake are machines in memory, which run nothing. They are served by the real server of smolvm's API.
type fake struct {
	server.Machines

	mu       sync.Mutex
	machines map[string]api.Machine
	health   api.Health
	drained  int
	deleted  []string
	// commands has what was to be executed.
	commands []string
	// follow is closed to end logs.
	follow chan struct{}
}

func newFake() *fake {
	return &fake{machines: map[string]api.Machine{}, follow: make(chan struct{}), health: api.Health{
		Status: "ok", Version: "0", Backend: fakeBackend, Accelerator: "kvm", Features: []string{api.FeatureSurvivesRestart},
	}}
}

func (f *fake) List(context.Context) ([]api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []api.Machine
	for _, name := range slices.Sorted(maps.Keys(f.machines)) {
		all = append(all, f.machines[name])
	}
	return all, nil
}

func (f *fake) Get(_ context.Context, name string) (api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.machines[name]
	if !ok {
		return m, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	return m, nil
}

func (f *fake) Create(_ context.Context, r api.CreateRequest) (api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.machines[r.Name]; ok {
		return api.Machine{}, api.Errorf(api.CodeConflict, "machine '%s' already exists", r.Name)
	}
	m := api.Machine{Name: r.Name, State: api.StateCreated, CPUs: 1, MemoryMB: 512, Image: r.Image, Owner: r.Owner, CreatedAt: 1}
	f.machines[r.Name] = m
	return m, nil
}

func (f *fake) change(name string, state api.State) (api.Machine, error) {
	m, err := f.Get(context.Background(), name)
	if err != nil {
		return m, err
	}
	m.State = state
	f.put(m)
	return m, nil
}

func (f *fake) put(machines ...api.Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range machines {
		f.machines[m.Name] = m
	}
}

func (f *fake) Start(_ context.Context, name string, _ api.StartRequest) (api.Machine, error) {
	if name == "taken" {
		return api.Machine{}, api.Errorf(api.CodePortInUse, "port 80 of the host is in use")
	}
	return f.change(name, api.StateRunning)
}

func (f *fake) Stop(_ context.Context, name string) (api.Machine, error) {
	return f.change(name, api.StateStopped)
}

func (f *fake) Resize(_ context.Context, name string, _ api.ResizeRequest) (api.Machine, error) {
	return api.Machine{}, api.Errorf(api.CodeConflict, "machine '%s' must be stopped before resizing", name)
}

func (f *fake) Delete(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.machines[name]; !ok {
		return api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	delete(f.machines, name)
	f.deleted = append(f.deleted, name)
	return nil
}

// Exec writes a line, and the next one when the test says so.
func (f *fake) Exec(ctx context.Context, _ string, r api.ExecRequest, stdout, _ io.Writer) (int, error) {
	f.mu.Lock()
	f.commands = append(f.commands, r.Command[0])
	f.mu.Unlock()
	if _, err := fmt.Fprintf(stdout, "%s\n", r.Command[0]); err != nil {
		return 0, err
	}
	if r.Command[0] == "wait" {
		select {
		case <-f.follow:
		case <-ctx.Done():
		}
	}
	return 42, nil
}

func (f *fake) Logs(ctx context.Context, _ string, _ int, follow bool, out io.Writer) error {
	if _, err := io.WriteString(out, "boot\n"); err != nil || !follow {
		return err
	}
	select {
	case <-f.follow:
	case <-ctx.Done():
	}
	_, err := io.WriteString(out, "end\n")
	return err
}

func (f *fake) EgressEvents(context.Context, string, int) ([]api.EgressEvent, error) { return nil, nil }

func (f *fake) Capacity(context.Context) (api.Capacity, error) { return api.Capacity{}, nil }

func (f *fake) Health(context.Context) (api.Health, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health, nil
}

func (f *fake) Drain(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained++
	// A test of a child sees this.
	fmt.Println("drained")
	return nil
}

func (f *fake) executed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

var quiet = slog.New(slog.DiscardHandler)

// serveFake serves machines on a socket, until the returned function is called or the test ends.
func serveFake(t *testing.T, f *fake, socket string) (stop func()) {
	t.Helper()
	listener, err := server.Listen(t.Context(), "unix://"+socket, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener, server.New(server.Options{Machines: f, Log: quiet})) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// socketFor returns a path that is short enough for a socket.
func socketFor(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.sock")
	if len(path) > 100 {
		t.Fatalf("%s is too long for a socket", path)
	}
	return path
}

func clientOf(t *testing.T, socket string) *api.Client {
	t.Helper()
	c, err := api.NewClient("unix://"+socket, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

// listen listens on the loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
