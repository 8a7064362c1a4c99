package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

func state(t *testing.T, m *Manager, name string) api.State {
	t.Helper()
	found, err := m.Get(t.Context(), name)
	try(t, err)
	return found.State
}

func TestLife(t *testing.T) {
	n := newNode(t)
	m := n.open()
	created, err := m.Create(t.Context(), request("web"))
	try(t, err)
	if created.State != api.StateCreated || created.CPUs != 1 || created.MemoryMB != 512 || created.StorageGB != 1 || created.SpecHash == "" {
		t.Errorf("created: %+v", created)
	}
	for range 2 {
		started, err := m.Start(t.Context(), "web", api.StartRequest{})
		try(t, err)
		if started.State != api.StateRunning || started.PID == 0 || started.ImageDigest != "sha256:1234" {
			t.Errorf("started: %+v", started)
		}
	}
	if n := n.keepers.started[n.directory("web")]; n != 1 {
		t.Errorf("%d processes were started for two starts", n)
	}
	_, err = m.Resize(t.Context(), "web", api.ResizeRequest{StorageGB: pointer(int64(2))})
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "must be stopped before resizing. Current state: Running") {
		t.Errorf("resizing a running machine: %v", err)
	}
	for range 2 {
		stopped, err := m.Stop(t.Context(), "web")
		try(t, err)
		if stopped.State != api.StateStopped || stopped.PID != 0 {
			t.Errorf("stopped: %+v", stopped)
		}
	}
	for range 2 {
		resized, err := m.Resize(t.Context(), "web", api.ResizeRequest{StorageGB: pointer(int64(2))})
		try(t, err)
		size, err := disk.Size(filepath.Join(n.directory("web"), instance.StorageName))
		try(t, err)
		if resized.StorageGB != 2 || resized.OverlayGB != 1 || size != 2*gib {
			t.Errorf("resized: %+v, %d", resized, size)
		}
	}
	try(t, m.Delete(t.Context(), "web"))
	if err := m.Delete(t.Context(), "web"); !api.IsNotFound(err) {
		t.Errorf("deleting twice: %v", err)
	}
	if exists(n.directory("web")) {
		t.Error("the directory is left")
	}
}

func TestResizeRefuses(t *testing.T) {
	n := newNode(t)
	m := n.open()
	r := request("a")
	r.StorageGB = pointer(int64(3))
	_, err := m.Create(t.Context(), r)
	try(t, err)
	for text, c := range map[string]struct {
		request api.ResizeRequest
		want    string
	}{
		"nothing":   {api.ResizeRequest{}, "storageGb or overlayGb is missing"},
		"shrinking": {api.ResizeRequest{StorageGB: pointer(int64(2))}, "disks only grow"},
		"zero":      {api.ResizeRequest{OverlayGB: pointer(int64(0))}, "overlayGb is 0"},
		"too much":  {api.ResizeRequest{OverlayGB: pointer(int64(1) << 40)}, "overlayGb is"},
	} {
		if _, err := m.Resize(t.Context(), "a", c.request); api.CodeOf(err) != api.CodeBadRequest || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTheSameMachineAgain(t *testing.T) {
	n := newNode(t)
	m := n.open()
	first, err := m.Create(t.Context(), request("a"))
	try(t, err)
	again, err := m.Create(t.Context(), request("a"))
	try(t, err)
	if again.CreatedAt != first.CreatedAt || again.SpecHash != first.SpecHash {
		t.Errorf("again: %+v, first: %+v", again, first)
	}
	for text, change := range map[string]func(*api.CreateRequest){
		"another image": func(r *api.CreateRequest) { r.Image = "b" },
		"another hash":  func(r *api.CreateRequest) { r.SpecHash = "abc" },
		"another owner": func(r *api.CreateRequest) { r.Owner = &api.Owner{UID: "1"} },
	} {
		other := request("a")
		change(&other)
		if _, err := m.Create(t.Context(), other); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s: %v", text, err)
		}
	}
	unnamed, err := m.Create(t.Context(), request(""))
	try(t, err)
	if !strings.HasPrefix(unnamed.Name, "vm-") {
		t.Errorf("name %q", unnamed.Name)
	}
}

// TestAStartThatFailsLeavesNothing: neither a process nor what would start it again. A machine whose guest cannot have run is
// as before.
func TestAStartThatFailsLeavesNothing(t *testing.T) {
	for text, c := range map[string]struct {
		next  behavior
		image error
		code  api.Code
		want  string
		state api.State
	}{
		"a port in use":         {next: behavior{fails: &instance.End{Code: api.CodePortInUse, Message: "tcp port 18080 of 127.0.0.1 is already in use"}}, code: api.CodePortInUse, want: "18080", state: api.StateCreated},
		"a silent guest":        {next: behavior{fails: &instance.End{Code: api.CodeTimeout, Message: "the guest's agent does not answer"}}, code: api.CodeTimeout, want: "does not answer", state: api.StateStopped},
		"no message at the end": {next: behavior{dies: true}, code: api.CodeInternal, want: "ended without a message; see", state: api.StateStopped},
		"a full disk":           {next: behavior{fails: &instance.End{Code: api.CodeDiskFull, Message: "no room"}}, code: api.CodeDiskFull, want: "no room", state: api.StateStopped},
		"no image":              {image: errors.New("404 Not Found"), code: api.CodeImagePullFailed, want: "404 Not Found", state: api.StateCreated},
		"a broken image":        {image: ociimage.MalformedError{Reason: "a layer leads out"}, code: api.CodeImageMalformed, want: "a layer leads out", state: api.StateCreated},
		"a bad reference":       {image: &ociimage.ReferenceError{}, code: api.CodeBadRequest, want: "example.com/web:1", state: api.StateCreated},
		"no room":               {image: &disk.FullError{Path: "/images"}, code: api.CodeDiskFull, want: "/images", state: api.StateCreated},
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			_, err := m.Create(t.Context(), request("a"))
			try(t, err)
			n.keepers.next, n.images.err = c.next, c.image
			_, err = m.Start(t.Context(), "a", api.StartRequest{})
			if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v (%s)", err, api.CodeOf(err))
			}
			left, err := m.Get(t.Context(), "a")
			try(t, err)
			if n.keepers.count() != 0 || left.State != c.state || left.Message == "" || (left.StartedAt == 0) != (c.state == api.StateCreated) {
				t.Errorf("%d processes, machine %+v", n.keepers.count(), left)
			}
			m.supervise(t.Context(), m.machines["a"])
			if started := n.keepers.started[n.directory("a")]; started > 1 {
				t.Errorf("it was started %d times", started)
			}
			n.keepers.next, n.images.err = behavior{}, nil
			_, err = m.Start(t.Context(), "a", api.StartRequest{})
			try(t, err)
		})
	}
}

// TestDisksStayWhileAProcessMayHaveThem: whatever cannot be confirmed dead keeps its disks.
func TestDisksStayWhileAProcessMayHaveThem(t *testing.T) {
	n := newNode(t)
	m := n.open()
	m.patience.shutDown, m.patience.kill = 200*time.Millisecond, 200*time.Millisecond // processes that do not end are given up soon
	_, err := m.Create(t.Context(), request("a"))
	try(t, err)
	n.keepers.next = behavior{stubborn: true, immortal: true}
	_, err = m.Start(t.Context(), "a", api.StartRequest{})
	try(t, err)
	for range 2 {
		if err := m.Delete(t.Context(), "a"); api.CodeOf(err) != api.CodeInternal || !strings.Contains(err.Error(), "still alive") {
			t.Errorf("deleting: %v", err)
		}
	}
	if _, err := m.Stop(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "may still be running") {
		t.Errorf("stopping: %v", err)
	}
	n.keepers.alive(n.directory("a")).mute = true
	m.patience.appear = 0
	if got := state(t, m, "a"); got != api.StateUnreachable {
		t.Errorf("state %s", got)
	}
	try(t, m.Close())
	m = n.open() // removes leftovers, of which this is none
	if !exists(filepath.Join(n.directory("a"), instance.StorageName)) {
		t.Fatal("the disk is gone")
	}
	n.keepers.vanish(n.directory("a"))
	try(t, m.Delete(t.Context(), "a"))
}

func TestASilentGuestIsStartedAfresh(t *testing.T) {
	n := newNode(t)
	m := n.open()
	_, err := m.Create(t.Context(), request("a"))
	try(t, err)
	_, err = m.Start(t.Context(), "a", api.StartRequest{})
	try(t, err)
	n.keepers.alive(n.directory("a")).silent = true
	if got := state(t, m, "a"); got != api.StateUnreachable {
		t.Errorf("state %s", got)
	}
	_, err = m.Start(t.Context(), "a", api.StartRequest{})
	try(t, err)
	if got := n.keepers.started[n.directory("a")]; got != 2 || n.keepers.count() != 1 {
		t.Errorf("%d processes were started, %d run", got, n.keepers.count())
	}
}

// TestAStartThatIsGivenUpGoesOn: the next request waits for the same process.
func TestAStartThatIsGivenUpGoesOn(t *testing.T) {
	n := newNode(t)
	m := n.open()
	_, err := m.Create(t.Context(), request("a"))
	try(t, err)
	n.keepers.next = behavior{silent: true}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := m.Start(ctx, "a", api.StartRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	got, err := m.Get(t.Context(), "a")
	try(t, err)
	if got.State == api.StateRunning || !strings.Contains(got.Message, "the machine starts") {
		t.Errorf("machine %+v", got)
	}
	n.keepers.mu.Lock()
	p := n.keepers.running[n.directory("a")]
	p.silent, p.ready = false, true
	n.keepers.mu.Unlock()
	_, err = m.Start(t.Context(), "a", api.StartRequest{})
	try(t, err)
	if got := n.keepers.started[n.directory("a")]; got != 1 {
		t.Errorf("%d processes were started", got)
	}
}

func TestABrokenRecordKeepsItsDisks(t *testing.T) {
	for text, content := range map[string]string{"no JSON": "{", "another version": `{"version":9,"name":"a"}`, "another machine": `{"version":1,"name":"b"}`} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			_, err := m.Create(t.Context(), request("a"))
			try(t, errors.Join(err, m.Close()))
			path := filepath.Join(n.directory("a"), recordName)
			try(t, os.WriteFile(path, []byte(content), 0o600))
			m = n.open()
			if _, err := m.Get(t.Context(), "a"); !api.IsNotFound(err) {
				t.Errorf("error %v", err)
			}
			if _, err := m.Create(t.Context(), request("a")); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), path) {
				t.Errorf("creating it: %v", err)
			}
			if !exists(filepath.Join(n.directory("a"), instance.StorageName)) {
				t.Error("the disk is gone")
			}
		})
	}
}

func TestOneServerForOneState(t *testing.T) {
	n := newNode(t)
	n.open()
	_, err := Open(Settings{State: n.state, Run: n.state}, n.images, n.keepers, nil)
	if err == nil || !strings.Contains(err.Error(), "only one server may use it") {
		t.Errorf("error %v", err)
	}
}

// TestManyMachinesAreAdopted: a new server finds all of them running, and starts none.
func TestManyMachinesAreAdopted(t *testing.T) {
	n := newNode(t)
	m := n.open()
	const count = 30
	for i := range count {
		r := request(string(rune('a'+i/26)) + string(rune('a'+i%26)))
		r.Ports = nil
		_, err := m.Create(t.Context(), r)
		try(t, err)
		_, err = m.Start(t.Context(), r.Name, api.StartRequest{})
		try(t, err)
	}
	try(t, m.Close())
	begin := time.Now()
	m = n.open()
	machines, err := m.List(t.Context())
	try(t, err)
	for _, one := range machines {
		if one.State != api.StateRunning {
			t.Errorf("%s is %s", one.Name, one.State)
		}
		m.supervise(t.Context(), m.machines[one.Name])
	}
	if took := time.Since(begin); len(machines) != count || took > 2*time.Second {
		t.Errorf("%d machines after %s", len(machines), took)
	}
	for directory, started := range n.keepers.started {
		if started != 1 {
			t.Errorf("%s was started %d times", directory, started)
		}
	}
	try(t, m.Drain(t.Context()))
	if n.keepers.count() != 0 {
		t.Errorf("%d run after draining", n.keepers.count())
	}
}

func TestRestartPolicies(t *testing.T) {
	shutDown := instance.End{Reason: keeper.ReasonGuestShutDown}
	crashed := instance.End{Reason: keeper.ReasonQEMUCrashed}
	begin := time.Unix(1e9, 0)
	for text, c := range map[string]struct {
		restart api.Restart
		retries int
		end     instance.End
		ran     time.Duration
		again   bool
		left    int
		after   time.Duration
		failed  bool
	}{
		"never":                          {api.Restart{Policy: api.RestartNever}, 0, crashed, time.Minute, false, 0, 0, false},
		"always, after a shutdown":       {api.Restart{Policy: api.RestartAlways}, 0, shutDown, time.Minute, true, 1, time.Second, false},
		"unless stopped":                 {api.Restart{Policy: api.RestartUnlessStopped}, 2, shutDown, time.Minute, true, 3, 4 * time.Second, false},
		"on failure, after a shutdown":   {api.Restart{Policy: api.RestartOnFailure}, 0, shutDown, time.Minute, false, 0, 0, false},
		"on failure, after a crash":      {api.Restart{Policy: api.RestartOnFailure}, 1, crashed, time.Minute, true, 2, 2 * time.Second, false},
		"often":                          {api.Restart{Policy: api.RestartAlways}, 1000, crashed, time.Minute, true, 1001, 256 * time.Second, false},
		"the last time":                  {api.Restart{Policy: api.RestartAlways, MaxRetries: 3}, 2, crashed, time.Minute, true, 3, 4 * time.Second, false},
		"too often":                      {api.Restart{Policy: api.RestartAlways, MaxRetries: 3}, 3, crashed, time.Minute, false, 3, 0, true},
		"after a panic, on failure":      {api.Restart{Policy: api.RestartOnFailure}, 0, instance.End{Reason: keeper.ReasonGuestShutDown, Code: api.CodeInternal}, time.Minute, true, 1, time.Second, false},
		"after a signal":                 {api.Restart{Policy: api.RestartAlways, MaxRetries: 3}, 3, instance.End{Reason: keeper.ReasonPoweredDown, Signal: true}, time.Minute, true, 3, afterSignal, false},
		"after a signal, never":          {api.Restart{Policy: api.RestartNever}, 0, instance.End{Reason: keeper.ReasonPoweredDown, Signal: true}, time.Minute, false, 0, 0, false},
		"too often, but it ran for long": {api.Restart{Policy: api.RestartAlways, MaxRetries: 3}, 3, crashed, longRun, true, 1, time.Second, false},
	} {
		r := Record{Spec: Spec{Restart: c.restart}, Retries: c.retries, Started: begin, Wanted: true}
		now := begin.Add(c.ran)
		next := again(r, c.end, now)
		if next.Wanted != c.again || next.Retries != c.left || c.again && next.RetryAt.Sub(now) != c.after || next.Failed != c.failed || next.Message == "" {
			t.Errorf("%s: %+v", text, next)
		}
	}
}

// TestAMachineThatEndsByItself: it stays down, or comes back after its delay.
func TestAMachineThatEndsByItself(t *testing.T) {
	for policy, comesBack := range map[string]bool{api.RestartNever: false, api.RestartAlways: true} {
		t.Run(policy, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			now := time.Now()
			m.now = func() time.Time { return now }
			r := request("a")
			r.Restart = &api.Restart{Policy: policy}
			_, err := m.Create(t.Context(), r)
			try(t, err)
			_, err = m.Start(t.Context(), "a", api.StartRequest{})
			try(t, err)
			one := m.machines["a"]
			n.keepers.vanish(n.directory("a"))
			m.supervise(t.Context(), one)
			m.supervise(t.Context(), one)
			got, err := m.Get(t.Context(), "a")
			try(t, err)
			if got.State != api.StateStopped || !strings.Contains(got.Message, "its process was killed") {
				t.Errorf("machine %+v", got)
			}
			now = now.Add(2 * time.Second)
			m.supervise(t.Context(), one)
			one.busy <- struct{}{} // the start has ended
			<-one.busy
			if back := state(t, m, "a") == api.StateRunning; back != comesBack {
				t.Errorf("it came back: %t", back)
			}
		})
	}
}
