package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// TestStepsWithARuntimeOfSmolvm: the step is taken even where smolvm itself answers differently than our runtime.
func TestStepsWithARuntimeOfSmolvm(t *testing.T) {
	ours, theirs := &api.Owner{UID: "u"}, &api.Owner{UID: "v"}
	for name, test := range map[string]struct {
		request Request
		// answers are the answers to requests, by method and path below that of machines.
		answers map[string]string
		want    []string
		reason  string
	}{
		"a start that it refuses since it has stopped the machine": {
			Request{Action: machinestep.Start},
			map[string]string{"POST /k8s-m/start": `500 {"error":"machine m is already starting or running","code":"INTERNAL_ERROR"}`, "POST /k8s-m/exec": `200 {}`, "GET /k8s-m": `200 {"name":"m","state":"running"}`},
			[]string{"POST /k8s-m/start", "POST /k8s-m/exec", "GET /k8s-m"}, "",
		},
		"a start that fails": {
			Request{Action: machinestep.Start}, map[string]string{"POST /k8s-m/start": `500 {"error":"no","code":"INTERNAL_ERROR"}`},
			[]string{"POST /k8s-m/start"}, v1alpha1.ReasonRuntimeUnavailable,
		},
		"a creation whose first answer was lost": {
			Request{Action: machinestep.Create, Create: api.CreateRequest{Name: "k8s-m", Owner: ours}},
			map[string]string{"POST ": `409 {"error":"m exists","code":"CONFLICT"}`, "GET /k8s-m": `200 {"name":"m","state":"created","owner":{"uid":"u"}}`},
			[]string{"POST ", "GET /k8s-m"}, "",
		},
		"a creation in the place of another's": {
			Request{Action: machinestep.Create, Create: api.CreateRequest{Name: "k8s-m", Owner: theirs}},
			map[string]string{"POST ": `409 {"error":"m exists","code":"CONFLICT"}`, "GET /k8s-m": `200 {"name":"m","state":"created","owner":{"uid":"u"}}`},
			[]string{"POST ", "GET /k8s-m"}, v1alpha1.ReasonInvalidRequest,
		},
		"a deletion of what is gone": {
			Request{Action: machinestep.Delete}, map[string]string{"DELETE /k8s-m": `404 {"error":"no","code":"NOT_FOUND"}`}, []string{"DELETE /k8s-m"}, "",
		},
		"a growth that it does not know": {
			Request{Action: machinestep.Resize}, map[string]string{"POST /k8s-m/resize": `404 `}, []string{"POST /k8s-m/resize"}, v1alpha1.ReasonInvalidRequest,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			p, _ := pool(t)
			_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("watch") {
					stream(w, r, api.WatchEvent{Type: api.WatchSnapshot, Machines: []api.Machine{{Name: "k8s-m"}}})
					return
				}
				key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/machines")
				mu.Lock()
				asked = append(asked, key)
				mu.Unlock()
				status, body, _ := strings.Cut(test.answers[key], " ")
				code := http.StatusTeapot
				_ = json.Unmarshal([]byte(status), &code)
				w.WriteHeader(code)
				_, _ = fmt.Fprint(w, body)
			})
			p.Follow(node)
			until(t, "it is connected", func() bool { return p.Look("n1", "k8s-m").Known })
			if _, first := p.Do("n1", "k8s-m", test.request); !first {
				t.Error("it is not the first attempt")
			}
			s, _ := p.sessions.Get(named("n1"))
			var w work
			until(t, "the step has ended", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				now, there := s.works["k8s-m"]
				if there {
					w = *now
				}
				return !there || !now.under
			})
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(test.want, asked); diff != "" || (test.reason == "") != (w.failures == 0) || w.reason != test.reason {
				t.Errorf("the reason is %q, want %q; asked (-want +got):\n%s", w.reason, test.reason, diff)
			}
		})
	}
}

// TestRequestsAreTold: with the reason of a failure, and none that a runtime makes up.
func TestRequestsAreTold(t *testing.T) {
	told := make(chan string, 10)
	p := New(Options{Changed: func(string, string) {}, Times: short, Asked: func(action, result string, took time.Duration) {
		if took > 0 {
			told <- action + " " + result
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot, Machines: []api.Machine{{Name: "k8s-a"}, {Name: "k8s-b"}}})
		case strings.HasSuffix(r.URL.Path, "/stop"):
			_, _ = fmt.Fprint(w, `{"name":"k8s-a","state":"stopped"}`)
		case strings.HasSuffix(r.URL.Path, "/k8s-b"):
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprint(w, `{"error":"no","code":"MADE_UP"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"error":"no","code":"NOT_FOUND"}`)
		}
	})
	p.Follow(node)
	until(t, "it is connected", func() bool { return p.Peek("n1", "k8s-a") != nil })
	for _, step := range []struct {
		take func()
		want string
	}{
		{func() { p.Do("n1", "k8s-a", Request{Action: machinestep.Stop}) }, "Stop ok"},
		{func() { p.Do("n1", "k8s-b", Request{Action: machinestep.Delete}) }, "Delete InvalidRequest"},
		{func() { p.Look("n1", "k8s-missing") }, "Ask ok"},
	} {
		step.take()
		select {
		case got := <-told:
			if got != step.want {
				t.Errorf("told %q, want %q", got, step.want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("not told: %s", step.want)
		}
	}
}

// TestOneThatMayNotWriteChangesNoMachine: a replica that has lost its Lease asks, and changes nothing.
func TestOneThatMayNotWriteChangesNoMachine(t *testing.T) {
	var changes atomic.Int32
	c := &calls{count: map[string]int{}}
	closed := fence.New("giantswarm/smolvm-controller", time.Minute, func() time.Duration { return 0 })
	p := New(Options{Changed: c.changed, Times: short, Wrap: closed.Transport})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			changes.Add(1)
		}
		stream(w, r, api.WatchEvent{Type: api.WatchSnapshot, Machines: []api.Machine{{Name: "k8s-m"}}})
	})
	p.Follow(node)
	until(t, "it is connected", func() bool { return p.Look("n1", "k8s-m").Known })
	var progress state.Progress
	until(t, "the step is refused", func() bool {
		progress, _ = p.Do("n1", "k8s-m", Request{Action: machinestep.Delete})
		return progress.Reason != ""
	})
	if changes.Load() != 0 || !strings.Contains(progress.Message, "does not hold the Lease") {
		t.Errorf("%d requests were sent; got %+v", changes.Load(), progress)
	}
}

// TestLongStepsKeepNothingElseWaiting, nor does one namespace keep the others.
func TestLongStepsKeepNothingElseWaiting(t *testing.T) {
	for name, long := range map[string]Request{
		"starts":               {Action: machinestep.Start},
		"creations with files": {Action: machinestep.Create, Create: api.CreateRequest{From: "/artifacts/web.smolmachine"}},
	} {
		t.Run(name, func(t *testing.T) {
			var begun, ended, others atomic.Int32
			p, _ := pool(t)
			_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Query().Has("watch"):
					stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
				case r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/stop"):
					_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the client has gone
					begun.Add(1)
					<-r.Context().Done()
					ended.Add(1)
				default:
					others.Add(1)
					absentMachine(w, r)
				}
			})
			p.Follow(node)
			until(t, "it is connected", func() bool { return p.Look("n1", "k8s-m").Known })
			for i := range 40 {
				r := long
				r.Namespace = "a"
				p.Do("n1", fmt.Sprint("k8s-a", i), r)
			}
			until(t, "those of one namespace have begun", func() bool { return begun.Load() == startsPerNamespace })
			for i := range 40 {
				r := long
				r.Namespace = fmt.Sprint("b", i)
				p.Do("n1", fmt.Sprint("k8s-b", i), r)
			}
			until(t, "those of others have begun", func() bool { return begun.Load() == startsPerNode })
			before := others.Load()
			p.Look("n1", "k8s-other")
			p.Do("n1", "k8s-another", Request{Action: machinestep.Stop, Namespace: "c"})
			until(t, "a question and a stop are answered", func() bool { return others.Load() >= before+2 })
			if n := begun.Load(); n != startsPerNode {
				t.Errorf("%d are under way", n)
			}
			for i := range 40 {
				p.Do("n1", fmt.Sprint("k8s-a", i), Request{Action: machinestep.Delete, Namespace: "a"})
			}
			for i := range 40 {
				p.Do("n1", fmt.Sprint("k8s-b", i), Request{Action: machinestep.Nothing})
			}
			until(t, "those of machines to be deleted have ended", func() bool { return ended.Load() >= startsPerNode })
		})
	}
}

// TestStopsOfOneNamespaceKeepNoOtherWaiting: guests that do not shut down make each of them take as long as they can.
func TestStopsOfOneNamespaceKeepNoOtherWaiting(t *testing.T) {
	var begun, others atomic.Int32
	p, _ := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
		case strings.HasPrefix(r.URL.Path, "/api/v1/machines/k8s-a") && strings.HasSuffix(r.URL.Path, "/stop"):
			begun.Add(1)
			<-r.Context().Done()
		default:
			others.Add(1)
			absentMachine(w, r)
		}
	})
	p.options.Times.Act = time.Minute
	p.Follow(node)
	until(t, "it is connected", func() bool { return p.Look("n1", "k8s-m").Known })
	for i := range 2 * slotsPerNode {
		p.Do("n1", fmt.Sprint("k8s-a", i), Request{Action: machinestep.Stop, Namespace: "a"})
	}
	until(t, "those of one namespace have begun", func() bool { return begun.Load() >= stepsPerNamespace })
	before := others.Load()
	p.Look("n1", "k8s-other")
	p.Do("n1", "k8s-another", Request{Action: machinestep.Delete, Namespace: "b"})
	until(t, "a question and a deletion of another are answered", func() bool { return others.Load() >= before+2 })
	if n := begun.Load(); n != stepsPerNamespace {
		t.Errorf("%d are under way", n)
	}
}

// TestACreationWithAFileHasTheTimeOfAStart: the runtime reads all of the file meanwhile.
func TestACreationWithAFileHasTheTimeOfAStart(t *testing.T) {
	p, _ := pool(t)
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
		case r.Method == http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
			case <-time.After(p.options.Times.Act + 500*time.Millisecond):
				_ = json.NewEncoder(w).Encode(api.Machine{Name: "k8s-m", State: api.StateCreated})
			}
		default:
			absentMachine(w, r)
		}
	})
	p.Follow(node)
	until(t, "it is connected", func() bool { return p.Look("n1", "k8s-m").Known })
	p.Do("n1", "k8s-m", Request{Action: machinestep.Create, Create: api.CreateRequest{Name: "k8s-m", From: "/artifacts/web.smolmachine"}})
	until(t, "the machine is there", func() bool { return p.Look("n1", "k8s-m").Machine != nil })
}
