package microvm

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// operation is one that changes a machine. It is delivered twice, or again after a crash, with one effect.
type operation struct {
	// before brings the machine to where the operation begins.
	before func(*testing.T, *Manager)
	do     func(*testing.T, *Manager) error
	// after checks the effect.
	after func(*testing.T, *node, *Manager)
}

func create(t *testing.T, m *Manager) error {
	_, err := m.Create(t.Context(), request("a"))
	return err
}

func start(t *testing.T, m *Manager) error {
	_, err := m.Start(t.Context(), "a", api.StartRequest{})
	return err
}

func stop(t *testing.T, m *Manager) error {
	_, err := m.Stop(t.Context(), "a")
	return err
}

func created(t *testing.T, m *Manager) { try(t, create(t, m)) }

func started(t *testing.T, m *Manager) { created(t, m); try(t, start(t, m)) }

func is(want api.State) func(*testing.T, *node, *Manager) {
	return func(t *testing.T, _ *node, m *Manager) {
		t.Helper()
		if got := state(t, m, "a"); got != want {
			t.Errorf("state %s, want %s", got, want)
		}
	}
}

var operations = map[string]operation{
	"create": {func(*testing.T, *Manager) {}, create, is(api.StateCreated)},
	"start":  {created, start, is(api.StateRunning)},
	"stop":   {started, stop, is(api.StateStopped)},
	"resize": {created, func(t *testing.T, m *Manager) error {
		_, err := m.Resize(t.Context(), "a", api.ResizeRequest{StorageGB: pointer(int64(3)), OverlayGB: pointer(int64(2))})
		return err
	}, func(t *testing.T, n *node, m *Manager) {
		t.Helper()
		got, err := m.Get(t.Context(), "a")
		try(t, err)
		size, err := disk.Size(filepath.Join(n.directory("a"), instance.StorageName))
		try(t, err)
		if got.StorageGB != 3 || got.OverlayGB != 2 || size != 3*gib {
			t.Errorf("machine %+v, disk %d", got, size)
		}
	}},
	"delete": {started, func(t *testing.T, m *Manager) error {
		err := m.Delete(t.Context(), "a")
		if api.IsNotFound(err) {
			return nil // that is how a repeated deletion succeeds
		}
		return err
	}, func(t *testing.T, n *node, m *Manager) {
		t.Helper()
		if _, err := m.Get(t.Context(), "a"); !api.IsNotFound(err) || exists(n.directory("a")) || n.keepers.count() > 0 {
			t.Errorf("error %v, directory left: %t, %d processes", err, exists(n.directory("a")), n.keepers.count())
		}
	}},
}

// TestOperationsTwice: the second delivery of an operation, as after a lost answer, changes nothing.
func TestOperationsTwice(t *testing.T) {
	for name, o := range operations {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			o.before(t, m)
			for range 2 {
				try(t, o.do(t, m))
				o.after(t, n, m)
			}
			if count := n.keepers.started[n.directory("a")]; count > 1 {
				t.Errorf("%d processes were started", count)
			}
		})
	}
}

// steps returns the steps of an operation.
func steps(t *testing.T, o operation) []string {
	t.Helper()
	m := newNode(t).open()
	o.before(t, m)
	var found []string
	m.step = func(name string) { found = append(found, name) }
	try(t, o.do(t, m))
	return found
}

// crash runs an operation until a step, at which the server is gone. Processes of machines are not.
func crash(t *testing.T, m *Manager, o operation, at string) {
	t.Helper()
	gone := make(chan struct{})
	m.step = func(name string) {
		if name == at {
			runtime.Goexit()
		}
	}
	go func() {
		defer close(gone)
		_ = o.do(t, m)
		t.Errorf("the operation passed %q", at)
	}()
	<-gone
	try(t, m.Close())
}

// TestCrashes: the server may be killed at any point of an operation, and whatever the next server finds, the repeated
// operation has its one effect, no disk of a machine is lost, and nothing is left that belongs to no machine.
func TestCrashes(t *testing.T) {
	count := 0
	for name, o := range operations {
		for _, at := range steps(t, o) {
			for _, powerCut := range []bool{false, true} {
				count++
				t.Run(name+"/"+at+map[bool]string{true: "/power cut"}[powerCut], func(t *testing.T) {
					n := newNode(t)
					m := n.open()
					o.before(t, m)
					crash(t, m, o, at)
					if powerCut {
						n.keepers.vanish(n.directory("a"))
					}
					m = n.open()
					settle(t, n, m)
					try(t, o.do(t, m))
					o.after(t, n, m)
					settle(t, n, m)
				})
			}
		}
	}
	t.Logf("%d crashes in %d operations", count, len(operations))
	if count < 24 {
		t.Errorf("only %d crashes", count)
	}
}

// settle lets the server look after its machines, and checks what always holds.
func settle(t *testing.T, n *node, m *Manager) {
	t.Helper()
	for _, one := range m.all() {
		m.supervise(t.Context(), one)
		one.busy <- struct{}{}
		<-one.busy
	}
	machines, err := m.List(t.Context())
	try(t, err)
	var directories []string
	for _, one := range machines {
		directories = append(directories, n.directory(one.Name))
		if !exists(filepath.Join(n.directory(one.Name), instance.StorageName)) {
			t.Errorf("the disk of %s is gone", one.Name)
		}
	}
	found, err := filepath.Glob(filepath.Join(n.state, "machines", "*"))
	try(t, err)
	found = slices.DeleteFunc(found, func(path string) bool { return filepath.Ext(path) == ".lock" })
	if !slices.Equal(found, directories) {
		t.Errorf("directories %v of machines %v", found, directories)
	}
	if n.keepers.count() > len(machines) {
		t.Errorf("%d processes for %d machines", n.keepers.count(), len(machines))
	}
}

// TestManyRequestsAtOnce: operations on one machine follow each other.
func TestManyRequestsAtOnce(t *testing.T) {
	n := newNode(t)
	m := n.open()
	created(t, m)
	deadline := time.Now().Add(2 * time.Second)
	done := make(chan error)
	for i := range 8 {
		go func() {
			var err error
			for err == nil && time.Now().Before(deadline) {
				if i%2 == 0 {
					err = start(t, m)
					if errors.Is(err, errInterrupted) {
						err = nil
					}
				} else {
					err = stop(t, m)
				}
				if n.keepers.count() > 1 {
					t.Error("two processes at the same time")
				}
			}
			done <- err
		}()
	}
	for range 8 {
		try(t, <-done)
	}
	try(t, m.Delete(t.Context(), "a"))
}
