package chart_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// playedMachines are machines in memory, which run nothing, behind the real server of smolvm's API.
type playedMachines struct {
	server.Machines

	socket string

	mu       sync.Mutex
	machines map[string]api.Machine
	auth     map[string]*api.RegistryAuth
	drained  int
}

// playMachines serves them until the test ends. One of them has lost its SmolVM: the runtime looks for it.
func (i installation) playMachines(t *testing.T) *playedMachines {
	t.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	i.Get(t, system)
	p := &playedMachines{socket: filepath.Join(t.TempDir(), "smolvm.sock"), auth: map[string]*api.RegistryAuth{}, machines: map[string]api.Machine{"orphan": {
		Name: "orphan", State: api.StateStopped, Owner: &api.Owner{Cluster: string(system.UID), Namespace: "default", Name: "gone", UID: "of-one-that-is-gone"},
	}}}
	listener, err := server.Listen(t.Context(), "unix://"+p.socket, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(ctx, listener, server.New(server.Options{Machines: p, Log: slog.New(slog.DiscardHandler)}))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *playedMachines) has(name string) bool {
	_, err := p.Get(context.Background(), name)
	return err == nil
}

func (p *playedMachines) drains() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained
}

// List implements server.Machines.
func (p *playedMachines) List(context.Context) ([]api.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []api.Machine
	for _, m := range p.machines {
		all = append(all, m)
	}
	return all, nil
}

// Get implements server.Machines.
func (p *playedMachines) Get(_ context.Context, name string) (api.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.machines[name]; ok {
		return m, nil
	}
	return api.Machine{}, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
}

// Create implements server.Machines.
func (p *playedMachines) Create(_ context.Context, r api.CreateRequest) (api.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := api.Machine{Name: r.Name, State: api.StateCreated, CPUs: 1, MemoryMB: 512, StorageGB: *r.StorageGB, OverlayGB: *r.OverlayGB, Image: r.Image, Network: r.Network, Owner: r.Owner, SpecHash: r.SpecHash}
	p.machines[r.Name] = m
	return m, nil
}

// Start implements server.Machines.
func (p *playedMachines) Start(_ context.Context, name string, r api.StartRequest) (api.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machines[name]
	m.State, m.PID, m.Workload = api.StateRunning, 4711, api.WorkloadRunning
	p.machines[name], p.auth[name] = m, r.RegistryAuth
	return m, nil
}

// authOf returns what came with the last start of a machine.
func (p *playedMachines) authOf(name string) *api.RegistryAuth {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.auth[name]
}

// Delete implements server.Machines.
func (p *playedMachines) Delete(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machines, name)
	return nil
}

// Health implements server.Machines.
func (p *playedMachines) Health(context.Context) (api.Health, error) {
	return api.Health{Status: "ok", Backend: "fake", Version: "0", Accelerator: "tcg", Features: []string{api.FeatureSurvivesRestart}}, nil
}

// Capacity implements server.Machines.
func (p *playedMachines) Capacity(context.Context) (api.Capacity, error) { return api.Capacity{}, nil }

// Drain implements server.Machines.
func (p *playedMachines) Drain(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained++
	return nil
}
