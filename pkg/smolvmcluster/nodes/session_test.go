package nodes

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

var short = Times{
	First: 20 * time.Millisecond, Last: 100 * time.Millisecond, Silence: time.Second, Grace: 400 * time.Millisecond, Poll: 50 * time.Millisecond,
	Get: time.Second, Act: time.Second, Start: 5 * time.Second,
}

// calls counts what a Pool reports.
type calls struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *calls) changed(node, machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[node+"/"+machine]++
}

func (c *calls) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.count {
		n += k
	}
	return n
}

// pool runs a Pool until the end of the test.
func pool(t *testing.T) (*Pool, *calls) {
	t.Helper()
	c := &calls{count: map[string]int{}}
	p := New(Options{Changed: c.changed, Times: short})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Start(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p, c
}

// runtimeOf serves a handler as the runtime of node n1.
func runtimeOf(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *v1alpha1.SmolVMNode) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.IdentityPath {
			_ = json.NewEncoder(w).Encode(api.Identity{NodeName: "n1"})
			return
		}
		handler(w, r)
	}))
	own := (*authority)(nil).issue(t, false, "n1")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.certificate.Raw}, PrivateKey: own.key}}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	node := &v1alpha1.SmolVMNode{}
	node.Name, node.Status.NodeUID = "n1", "uid"
	address := server.Listener.Addr().(*net.TCPAddr)
	node.Status.Endpoint = v1alpha1.Endpoint{
		PodIP: "127.0.0.1", Port: int32(address.Port), Certificate: own.pem(),
	}
	return server, node
}

// stream answers a watch with events, and stays until the client goes.
func stream(w http.ResponseWriter, r *http.Request, events ...api.WatchEvent) {
	w.Header().Set("Content-Type", api.WatchContentType)
	encoder := json.NewEncoder(w)
	for _, e := range events {
		if encoder.Encode(e) != nil {
			return
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// TestAShortSilenceSaysNothing: what was known counts while a runtime is replaced, and no longer than the grace.
func TestAShortSilenceSaysNothing(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		stream(w, r, api.WatchEvent{Type: api.WatchSnapshot, Machines: []api.Machine{{Name: "k8s-m", State: api.StateRunning}}})
	}
	p, _ := pool(t)
	server, node := runtimeOf(t, handler)
	p.Follow(node)
	until(t, "the machine is known", func() bool { return p.Look("n1", "k8s-m").Machine != nil })

	next, moved := runtimeOf(t, handler)
	server.CloseClientConnections()
	server.Close()
	if r := p.Look("n1", "k8s-m"); !r.Known || r.Machine == nil {
		t.Errorf("just after its end it is %+v", r)
	}
	p.Follow(moved)
	if r := p.Look("n1", "k8s-m"); !r.Known || r.Machine == nil || r.NodeUID != "uid" {
		t.Errorf("elsewhere it is %+v", r)
	}
	next.CloseClientConnections()
	next.Close()
	until(t, "the runtime is away", func() bool { return p.Look("n1", "k8s-m").Reason == v1alpha1.ReasonRuntimeUnavailable })

	replaced := moved.DeepCopy()
	replaced.Status.NodeUID = "another"
	p.Follow(replaced)
	until(t, "nothing is believed of the former node", func() bool {
		r := p.Look("n1", "k8s-m")
		return r.Machine == nil && r.NodeUID == "another"
	})
	p.Forget("n1")
	if r := p.Look("n1", "k8s-m"); r.Reason != v1alpha1.ReasonRuntimeUnavailable || !strings.Contains(r.Message, "there is no SmolVMNode n1") {
		t.Errorf("without a SmolVMNode it is %+v", r)
	}
}

// TestAbsenceIsAskedFor: a list that was made before a machine was says nothing.
func TestAbsenceIsAskedFor(t *testing.T) {
	asked := make(chan string, 10)
	p, _ := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
			return
		}
		asked <- r.URL.Path
		if strings.HasSuffix(r.URL.Path, "/late") {
			_ = json.NewEncoder(w).Encode(api.Machine{Name: "late", State: api.StateCreated})
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"error":"no","code":"NOT_FOUND"}`)
	})
	p.Follow(node)
	until(t, "the late one is there", func() bool { return p.Look("n1", "late").Machine != nil })
	until(t, "the absent one is not", func() bool { r := p.Look("n1", "absent"); return r.Known && r.Machine == nil })
	for range 10 {
		p.Look("n1", "absent")
	}
	if len(asked) != 2 {
		t.Errorf("it was asked %d times", len(asked))
	}
}

// TestA404WithoutACodeIsNoAbsence: a proxy, or another program, may answer so.
func TestA404WithoutACodeIsNoAbsence(t *testing.T) {
	p, _ := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
			return
		}
		http.NotFound(w, r)
	})
	p.Follow(node)
	var r state.Runtime
	until(t, "it is reported", func() bool { r = p.Look("n1", "k8s-m"); return r.Known })
	if r.Reason != v1alpha1.ReasonInvalidRequest || r.After <= 0 {
		t.Errorf("it is %+v", r)
	}
}

// TestARuntimeThatTalksWithoutEndIsBounded: neither its machines nor its changes take more than their share.
func TestARuntimeThatTalksWithoutEndIsBounded(t *testing.T) {
	p, c := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", api.WatchContentType)
		encoder := json.NewEncoder(w)
		_ = encoder.Encode(api.WatchEvent{Type: api.WatchSnapshot})
		for i := 0; r.Context().Err() == nil; i++ {
			if encoder.Encode(api.WatchEvent{Type: api.WatchChanged, Machine: &api.Machine{Name: fmt.Sprint("k8s-m", i%3), PID: i}}) != nil {
				return
			}
		}
	})
	began := time.Now()
	p.Follow(node)
	until(t, "the burst is over", func() bool { return c.all() >= changesBurst })
	time.Sleep(500 * time.Millisecond)
	if most := changesBurst + int(time.Since(began).Seconds()*changesPerSecond) + 2; c.all() > most {
		t.Errorf("%d changes were reported, want %d at most", c.all(), most)
	}

	many := make([]api.Machine, mostMachines+1)
	for i := range many {
		many[i].Name = fmt.Sprint("k8s-m", i)
	}
	p.Forget("n1")
	_, crowded := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, r, api.WatchEvent{Type: api.WatchSnapshot, Machines: many})
	})
	p.Follow(crowded)
	until(t, "it is refused", func() bool { return strings.Contains(p.Look("n1", "k8s-m0").Message, "more than 10000 machines") })
}

// TestAMachineThatEndsAtOnceIsNotStartedWithoutEnd: each start waits longer, until the spec changes.
func TestAMachineThatEndsAtOnceIsNotStartedWithoutEnd(t *testing.T) {
	s := newSession(Options{Times: Defaults}, Node{}, nil)
	request := Request{Action: machinestep.Start, Generation: 1}
	var waits []time.Duration
	for range 8 {
		s.ran("m", request)
		waits = append(waits, s.restIn("m", request).Round(time.Second))
	}
	if got, want := fmt.Sprint(waits), "[1s 2s 4s 8s 16s 32s 1m0s 1m0s]"; got != want {
		t.Errorf("the waits are %s, want %s", got, want)
	}
	if progress, _ := s.do("m", request); progress.Reason != v1alpha1.ReasonRestartBackOff || progress.After <= 0 {
		t.Errorf("got %+v", progress)
	}
	for _, action := range []machinestep.Action{machinestep.Stop, machinestep.Resize} {
		again := Request{Action: action, Generation: 1}
		if err := s.learn(string(action), again, &api.Machine{Name: string(action), State: api.StateRunning}, nil); err != nil {
			t.Fatal(err)
		}
		if progress, _ := s.do(string(action), again); progress.Reason != v1alpha1.ReasonNoEffect || progress.After <= 0 {
			t.Errorf("a %s without effect is reported as %+v", action, progress)
		}
	}
	for name, other := range map[string]Request{"a stop": {Action: machinestep.Stop, Generation: 1}, "another spec": {Action: machinestep.Start, Generation: 2}} {
		if wait := s.restIn("m", other); wait != 0 {
			t.Errorf("%s waits %s", name, wait)
		}
	}
	began := s.runs["m"]
	began.last = time.Now().Add(-lastingRun - time.Second)
	s.runs["m"] = began
	if wait := s.restIn("m", request); wait != 0 {
		t.Errorf("one that has run for long waits %s", wait)
	}
}
