package microvm

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
)

// TestARequestThatIsGivenUpHarmsNoMachine: whenever its client goes away, also while the machine is asked how it is.
func TestARequestThatIsGivenUpHarmsNoMachine(t *testing.T) {
	n := newNode(t)
	m := n.open()
	started(t, m)
	n.keepers.alive(n.directory("a")).slow = 20 * time.Millisecond
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		for _, ask := range []func() error{
			func() error { _, err := m.Start(ctx, "a", api.StartRequest{}); return err },
			func() error { return m.ReadFile(ctx, "a", "/etc/hostname", io.Discard) },
		} {
			_ = ask()
		}
		cancel()
	}
	if n.keepers.kills != 0 || n.keepers.started[n.directory("a")] != 1 {
		t.Errorf("%d kills, %d starts", n.keepers.kills, n.keepers.started[n.directory("a")])
	}
}

// TestManyWhoLookSeeTheSame: a look at a machine takes nothing that another look, or an operation, needs.
func TestManyWhoLookSeeTheSame(t *testing.T) {
	n := newNode(t)
	m := n.open()
	started(t, m)
	try(t, stop(t, m))
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for range 4 {
		looking.Go(func() {
			for ctx.Err() == nil {
				machines, err := m.List(t.Context())
				if err != nil || slices.ContainsFunc(machines, func(one api.Machine) bool { return one.State == api.StateUnreachable }) {
					t.Errorf("machines %+v, %v", machines, err)
					return
				}
			}
		})
	}
	for range 20 {
		try(t, start(t, m))
		try(t, stop(t, m))
	}
	try(t, m.Delete(t.Context(), "a"))
	cancel()
	looking.Wait()
	if exists(n.directory("a")) {
		t.Error("the directory is left")
	}
}

// TestAProcessThatAppearsLate: between its start and its first sign it is neither forgotten nor started twice.
func TestAProcessThatAppearsLate(t *testing.T) {
	for text, do := range map[string]func(t *testing.T, m *Manager) error{
		"stop": stop, "delete": func(t *testing.T, m *Manager) error { return m.Delete(t.Context(), "a") },
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			created(t, m)
			n.keepers.next = behavior{late: 300 * time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := m.Start(ctx, "a", api.StartRequest{}); err == nil {
				t.Fatal("it was started at once")
			}
			try(t, do(t, m))
			if n.keepers.count() != 0 {
				t.Errorf("%d processes", n.keepers.count())
			}
		})
	}
	t.Run("another server", func(t *testing.T) {
		n := newNode(t)
		m := n.open()
		created(t, m)
		n.keepers.next = behavior{late: 300 * time.Millisecond}
		crash(t, m, operations["start"], "start: process")
		try(t, os.Remove(filepath.Join(n.directory("a"), recordName))) // as an interrupted deletion does
		n.open()
		if n.keepers.count() != 0 || exists(n.directory("a")) {
			t.Errorf("%d processes, directory left: %t", n.keepers.count(), exists(n.directory("a")))
		}
	})
}

// TestAGuestThatIsSilentForAMomentIsLeftAlone: only a start that was asked for cuts its power.
func TestAGuestThatIsSilentForAMomentIsLeftAlone(t *testing.T) {
	n := newNode(t)
	m := n.open()
	started(t, m)
	n.keepers.alive(n.directory("a")).silent = true
	if err := m.ReadFile(t.Context(), "a", "/etc/hostname", io.Discard); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("reading: %v", err)
	}
	if _, err := m.Exec(t.Context(), "a", api.ExecRequest{Command: []string{"true"}}, io.Discard, io.Discard); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("a command: %v", err)
	}
	if n.keepers.kills != 0 {
		t.Errorf("%d kills", n.keepers.kills)
	}
}

// TestAFailedStartKeepsWhatIsWanted: a machine that waits to be started again is not forgotten because a request fails, is
// given up, or because the server ends.
func TestAFailedStartKeepsWhatIsWanted(t *testing.T) {
	for text, fail := range map[string]func(t *testing.T, n *node, m *Manager){
		"the registry refuses": func(t *testing.T, n *node, m *Manager) {
			n.images.err = errors.New("503")
			if err := start(t, m); err == nil {
				t.Error("it was started")
			}
		},
		"the client goes away": func(t *testing.T, n *node, m *Manager) {
			n.images.hangs = true
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := m.Start(ctx, "a", api.StartRequest{}); err == nil {
				t.Error("it was started")
			}
		},
		"the server ends": func(t *testing.T, n *node, m *Manager) {
			n.images.hangs = true
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			m.now = func() time.Time { return time.Now().Add(time.Hour) }
			m.supervise(ctx, m.machines["a"])
			m.starting.Wait()
		},
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			r := request("a")
			r.Restart = &api.Restart{Policy: api.RestartAlways}
			_, err := m.Create(t.Context(), r)
			try(t, err)
			try(t, start(t, m))
			n.keepers.vanish(n.directory("a"))
			m.supervise(t.Context(), m.machines["a"]) // decides that it is started again
			clear(n.images.cache)
			fail(t, n, m)
			n.images.err, n.images.hangs = nil, false
			try(t, m.Close())
			m = n.open()
			m.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
			m.supervise(t.Context(), m.machines["a"])
			m.starting.Wait()
			if got := state(t, m, "a"); got != api.StateRunning {
				t.Errorf("it is %s: %+v", got, m.machines["a"].get())
			}
		})
	}
}

// TestOneEndCountsOnce, also if the server is restarted before the machine is.
func TestOneEndCountsOnce(t *testing.T) {
	n := newNode(t)
	m := n.open()
	r := request("a")
	r.Restart = &api.Restart{Policy: api.RestartAlways, MaxRetries: 1}
	_, err := m.Create(t.Context(), r)
	try(t, err)
	try(t, start(t, m))
	n.keepers.vanish(n.directory("a"))
	for range 3 {
		m.supervise(t.Context(), m.machines["a"])
		try(t, m.Close())
		m = n.open()
	}
	m.now = func() time.Time { return time.Now().Add(time.Minute) }
	m.supervise(t.Context(), m.machines["a"])
	m.starting.Wait()
	if got := m.machines["a"].get(); got.Failed || got.Retries != 1 || n.keepers.started[n.directory("a")] != 2 {
		t.Errorf("record %+v, %d starts", got, n.keepers.started[n.directory("a")])
	}
}

// TestAManualStartEndsTheWait: what was decided before it does not count for the next end.
func TestAManualStartEndsTheWait(t *testing.T) {
	n := newNode(t)
	m := n.open()
	r := request("a")
	r.Restart = &api.Restart{Policy: api.RestartOnFailure}
	_, err := m.Create(t.Context(), r)
	try(t, err)
	try(t, start(t, m))
	n.keepers.vanish(n.directory("a"))
	m.supervise(t.Context(), m.machines["a"])
	try(t, start(t, m))
	n.keepers.end(n.directory("a"), instance.End{Reason: "GuestShutDown", Message: "the guest shut itself down"})
	m.now = func() time.Time { return time.Now().Add(time.Hour) }
	for range 2 {
		m.supervise(t.Context(), m.machines["a"])
		m.starting.Wait()
	}
	if got := n.keepers.started[n.directory("a")]; got != 2 {
		t.Errorf("%d starts", got)
	}
}

// TestAMachineKeepsItsImage: its tag may mean another one by now, and its registry may be away.
func TestAMachineKeepsItsImage(t *testing.T) {
	n := newNode(t)
	m := n.open()
	started(t, m)
	try(t, stop(t, m))
	n.images.digest = "sha256:other"
	try(t, start(t, m))
	try(t, stop(t, m))
	clear(n.images.cache) // pruned
	try(t, start(t, m))
	got, err := m.Get(t.Context(), "a")
	try(t, err)
	if want := []string{"example.com/web:1", "example.com/web@sha256:1234"}; !slices.Equal(n.images.asked, want) || got.ImageDigest != "sha256:1234" {
		t.Errorf("asked for %v, digest %s", n.images.asked, got.ImageDigest)
	}
	for reference, want := range map[string]string{
		"web": "web@d", "web:1": "web@d", "h:5000/web": "h:5000/web@d", "h:5000/a/web:1": "h:5000/a/web@d", "web@sha256:1": "web@sha256:1",
	} {
		if got := withDigest(reference, "d"); got != want {
			t.Errorf("%s became %s", reference, got)
		}
	}
}

// TestAStartIsInterrupted: to stop, delete or drain a machine does not wait for its image or its boot.
func TestAStartIsInterrupted(t *testing.T) {
	for text, c := range map[string]struct {
		hangs bool
		next  behavior
		do    func(t *testing.T, m *Manager) error
	}{
		"stop while the image is pulled": {hangs: true, do: stop},
		"stop while it boots":            {next: behavior{silent: true}, do: stop},
		"delete while it boots":          {next: behavior{silent: true}, do: func(t *testing.T, m *Manager) error { return m.Delete(t.Context(), "a") }},
		"drain while it boots":           {next: behavior{silent: true}, do: func(t *testing.T, m *Manager) error { return m.Drain(t.Context()) }},
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			created(t, m)
			n.images.hangs, n.keepers.next = c.hangs, c.next
			failed := make(chan error)
			go func() { failed <- start(t, m) }()
			for deadline := time.Now().Add(10 * time.Second); n.keepers.count() == 0 && len(m.machines["a"].progress()) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			begin := time.Now()
			try(t, c.do(t, m))
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if err := <-failed; err == nil || !strings.Contains(err.Error(), "the start was given up") {
				t.Errorf("the start: %v", err)
			}
			if n.keepers.count() != 0 {
				t.Errorf("%d processes", n.keepers.count())
			}
		})
	}
}

// TestAMachineThatHangsHidesNoOther: the server's health does not wait for machines.
func TestAMachineThatHangsHidesNoOther(t *testing.T) {
	n := newNode(t)
	m := n.open()
	started(t, m)
	_, err := m.List(t.Context())
	try(t, err)
	n.keepers.alive(n.directory("a")).slow = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	h, err := m.Health(ctx)
	if err != nil || ctx.Err() != nil || h.Machines.Total != 1 || h.Machines.Running != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestWhatCannotBeReadAgainIsNotStored(t *testing.T) {
	long := strings.Repeat("<", 1<<20)
	for text, change := range map[string]func(*api.CreateRequest){
		"an image": func(r *api.CreateRequest) { r.Image = long }, "an owner": func(r *api.CreateRequest) { r.Owner = &api.Owner{UID: long} },
		"arguments": func(r *api.CreateRequest) { r.Cmd = slices.Repeat([]string{""}, 1<<20) },
	} {
		n := newNode(t)
		r := request("a")
		change(&r)
		if _, err := n.open().Create(t.Context(), r); api.CodeOf(err) != api.CodeBadRequest || exists(n.directory("a")) {
			t.Errorf("%s: %.200v", text, err)
		}
	}
	n := newNode(t)
	m := n.open()
	r := request("a")
	r.Cmd = []string{strings.Repeat("<", maxText)}
	_, err := m.Create(t.Context(), r)
	try(t, errors.Join(err, start(t, m), m.Close()))
	if got := state(t, n.open(), "a"); got != api.StateRunning {
		t.Errorf("state %s", got)
	}
}

// TestAMissingDiskIsNotReplaced by an empty one.
func TestAMissingDiskIsNotReplaced(t *testing.T) {
	n := newNode(t)
	m := n.open()
	created(t, m)
	path := filepath.Join(n.directory("a"), instance.StorageName)
	try(t, os.Remove(path))
	if err := start(t, m); err == nil || !strings.Contains(err.Error(), path) || exists(path) {
		t.Errorf("error %v", err)
	}
}

func TestSocketsHaveShortPaths(t *testing.T) {
	state := filepath.Join(t.TempDir(), strings.Repeat("a", 100))
	if _, err := Open(Settings{State: state, Run: state}, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "can have 107") {
		t.Errorf("error %v", err)
	}
}
