package contract_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// fake keeps machines in memory. It is a fake and says so: it boots nothing and runs nothing. It shows that the suite
// and package server agree, and nothing about machines.
type fake struct {
	mu       sync.Mutex
	next     int
	machines map[string]*record
}

type record struct {
	asked   api.CreateRequest
	machine api.Machine
}

func newFake() *fake { return &fake{machines: map[string]*record{}} }

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func refuse(format string, arguments ...any) error {
	return api.Errorf(api.CodeBadRequest, format, arguments...)
}

func unsupported(what string) error {
	return api.Errorf(api.CodeUnsupported, "the fake of the contract suite %s", what)
}

func (f *fake) find(name string) (*record, error) {
	found, ok := f.machines[name]
	if !ok {
		return nil, api.Errorf(api.CodeNotFound, "machine '%s' not found", name)
	}
	return found, nil
}

// change changes a machine.
func (f *fake) change(name string, change func(*record) error) (api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.find(name)
	if err == nil {
		err = change(found)
	}
	if err != nil {
		return api.Machine{}, err
	}
	return found.machine, nil
}

func (f *fake) List(context.Context) ([]api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []api.Machine
	for _, found := range f.machines {
		list = append(list, found.machine)
	}
	slices.SortFunc(list, func(a, b api.Machine) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (f *fake) Get(_ context.Context, name string) (api.Machine, error) {
	return f.change(name, func(*record) error { return nil })
}

func (f *fake) Create(_ context.Context, r api.CreateRequest) (api.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Name == "" {
		f.next++
		r.Name = fmt.Sprintf("vm-%08x", f.next)
	}
	if err := check(&r); err != nil {
		return api.Machine{}, err
	}
	if found, ok := f.machines[r.Name]; ok {
		if reflect.DeepEqual(found.asked, r) {
			return found.machine, nil
		}
		return api.Machine{}, api.Errorf(api.CodeConflict, "machine '%s' already exists", r.Name)
	}
	made := &record{asked: r, machine: api.Machine{
		Name: r.Name, State: api.StateCreated, CPUs: either(r.CPUs, api.DefaultCPUs), MemoryMB: either(r.MemoryMB, api.DefaultMemoryMB),
		StorageGB: either(r.StorageGB, api.DefaultStorageGB), OverlayGB: either(r.OverlayGB, api.DefaultOverlayGB),
		Ports: r.Ports, Network: r.Network, AllowedCIDRs: r.AllowedCIDRs, CreatedAt: time.Now().Unix(), Image: r.Image, From: r.From, Owner: r.Owner,
	}}
	f.machines[r.Name] = made
	return made.machine, nil
}

func either[T any](value *T, unset T) T {
	if value == nil {
		return unset
	}
	return *value
}

// check refuses what spec 5.3, 5.5 and 5.6 refuse, and replaces bare addresses.
func check(r *api.CreateRequest) error {
	switch {
	case !validName.MatchString(r.Name), strings.Contains(r.Name, "--"), strings.HasSuffix(r.Name, "-"):
		return refuse("%q is no name of a machine", r.Name)
	case (r.Image == "") == (r.From == ""):
		return refuse("exactly one of image and from is required")
	case either(r.CPUs, 1) < 1, either(r.MemoryMB, 64) < 64, either(r.StorageGB, 1) < 1, either(r.OverlayGB, 1) < 1:
		return refuse("a machine needs a CPU, 64 MiB of memory and disks of 1 GiB")
	case len(r.Secrets) > 0:
		return refuse("secrets are not accepted over HTTP")
	case r.NetworkBackend == "tsi" && len(r.Ports) > 0:
		return refuse("ports need the backend virtio-net")
	case len(r.Mounts) > 0, r.GPU, r.CUDA, r.DockerSocket, r.RegistryRef != "", r.AllowedHosts != nil:
		return unsupported("has neither mounts, GPUs, docker, registryRef nor allowedHosts")
	case r.Restart != nil && !slices.Contains([]string{api.RestartNever, api.RestartAlways, api.RestartOnFailure, api.RestartUnlessStopped}, r.Restart.Policy):
		return refuse("%q is no policy of restarts", r.Restart.Policy)
	}
	if r.From != "" {
		if _, err := os.Stat(r.From); err != nil {
			return refuse("sidecar file not found: %s", r.From)
		}
	}
	return checkLists(r)
}

var validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkLists(r *api.CreateRequest) error {
	taken := map[uint16]bool{}
	for _, port := range r.Ports {
		if port.Host == 0 || port.Guest == 0 || taken[port.Host] {
			return refuse("port %d is 0 or published twice", port.Host)
		}
		taken[port.Host] = true
	}
	for _, variable := range r.Env {
		if !validVariable.MatchString(variable.Name) {
			return refuse("%q is no name of a variable", variable.Name)
		}
	}
	if r.AllowedCIDRs == nil {
		return nil
	}
	for i, text := range *r.AllowedCIDRs {
		if address, err := netip.ParseAddr(text); err == nil {
			(*r.AllowedCIDRs)[i] = netip.PrefixFrom(address, address.BitLen()).String()
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return refuse("%q is no CIDR, or has bits beyond its length", text)
		}
	}
	return nil
}

func (f *fake) Start(_ context.Context, name string, _ api.StartRequest) (api.Machine, error) {
	return f.change(name, func(r *record) error { r.machine.State = api.StateRunning; return nil })
}

func (f *fake) Stop(_ context.Context, name string) (api.Machine, error) {
	return f.change(name, func(r *record) error { r.machine.State = api.StateStopped; return nil })
}

func (f *fake) Delete(_ context.Context, name string) error {
	_, err := f.change(name, func(*record) error { delete(f.machines, name); return nil })
	return err
}

func (f *fake) Resize(_ context.Context, name string, size api.ResizeRequest) (api.Machine, error) {
	return f.change(name, func(r *record) error {
		storage, overlay := either(size.StorageGB, r.machine.StorageGB), either(size.OverlayGB, r.machine.OverlayGB)
		switch {
		case r.machine.State == api.StateRunning:
			return api.Errorf(api.CodeConflict, "machine '%s' must be stopped before resizing. Current state: Running", name)
		case storage < r.machine.StorageGB, overlay < r.machine.OverlayGB:
			return refuse("disks cannot shrink")
		}
		r.machine.StorageGB, r.machine.OverlayGB = storage, overlay
		return nil
	})
}

func (f *fake) Exec(_ context.Context, name string, _ api.ExecRequest, _, _ io.Writer) (int, error) {
	if _, err := f.Start(context.Background(), name, api.StartRequest{}); err != nil {
		return 0, err
	}
	return 0, unsupported("runs no commands")
}

func (f *fake) Logs(_ context.Context, name string, _ int, _ bool, _ io.Writer) error {
	_, err := f.change(name, func(*record) error {
		return api.Errorf(api.CodeNotFound, "machine '%s' has no console", name)
	})
	return err
}

func (f *fake) ReadFile(_ context.Context, name, _ string, _ io.Writer) error {
	_, err := f.change(name, func(*record) error { return unsupported("has no files") })
	return err
}

func (f *fake) WriteFile(_ context.Context, name, _ string, _ io.Reader) (int64, error) {
	_, err := f.change(name, func(*record) error { return unsupported("has no files") })
	return 0, err
}

func (f *fake) EgressEvents(_ context.Context, name string, _ int) ([]api.EgressEvent, error) {
	_, err := f.Get(context.Background(), name)
	return nil, err
}

func (f *fake) Capacity(context.Context) (api.Capacity, error) {
	return api.Capacity{BootID: "fake"}, nil
}

func (f *fake) Health(ctx context.Context) (api.Health, error) {
	health := api.Health{Status: "ok", Version: "fake", Backend: kindFake, AcceleratorReason: "this is a fake and boots nothing"}
	list, err := f.List(ctx)
	for _, m := range list {
		health.Machines.Total++
		if m.State == api.StateRunning {
			health.Machines.Running++
		}
	}
	return health, err
}

func (f *fake) Drain(ctx context.Context) error {
	list, err := f.List(ctx)
	for _, m := range list {
		if _, err := f.Stop(ctx, m.Name); err != nil && !api.IsNotFound(err) {
			return err
		}
	}
	return err
}
