package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

var creation = Request{Action: machinestep.Create, Generation: 1, Create: api.CreateRequest{Name: "k8s-m"}}

// creating serves a runtime of node n1 without machines. create answers creations, and get questions.
func creating(t *testing.T, create, get http.HandlerFunc) *v1alpha1.SmolVMNode {
	t.Helper()
	_, node := runtimeOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			stream(w, r, api.WatchEvent{Type: api.WatchSnapshot})
		case r.Method == http.MethodPost:
			create(w, r)
		default:
			get(w, r)
		}
	})
	return node
}

func absentMachine(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotFound)
	_, _ = fmt.Fprint(w, `{"error":"no","code":"NOT_FOUND"}`)
}

func isAbsent(r state.Runtime) bool { return r.Known && r.Reason == "" && r.Machine == nil }

// TestNothingIsAbsentWhileItIsCreated: a SmolVM that is deleted then waits, and one that is given up ends the creation.
func TestNothingIsAbsentWhileItIsCreated(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	p, told := pool(t)
	p.Follow(creating(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server sees the end of a client only after that
		close(began)
		<-r.Context().Done()
		close(ended)
	}, absentMachine))
	until(t, "it is absent", func() bool { return isAbsent(p.Look("n1", "k8s-m")) })
	p.Do("n1", "k8s-m", creation)
	if r := p.Look("n1", "k8s-m"); r.Known || r.Message != "" || r.After <= 0 {
		t.Errorf("at once it is %+v", r)
	}
	<-began
	s, _ := p.sessions.Get(named("n1"))
	s.mu.Lock()
	s.works["k8s-m"].began = time.Now().Add(-unanswered)
	s.mu.Unlock()
	if r := p.Look("n1", "k8s-m"); r.Known || !strings.Contains(r.Message, "is being created") {
		t.Errorf("later it is %+v", r)
	}
	before := told.all()
	p.Drop("n1", "k8s-m")
	<-ended
	until(t, "its end is reported", func() bool { return told.all() > before })
	until(t, "it is absent again", func() bool { return isAbsent(p.Look("n1", "k8s-m")) })
}

// TestACreationWhoseAnswerIsLostIsAskedFor before anything follows from that there was no such machine.
func TestACreationWhoseAnswerIsLostIsAskedFor(t *testing.T) {
	var made atomic.Bool
	p, told := pool(t)
	p.Follow(creating(t, func(http.ResponseWriter, *http.Request) {
		made.Store(true)
		panic(http.ErrAbortHandler)
	}, func(w http.ResponseWriter, r *http.Request) {
		if !made.Load() {
			absentMachine(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Machine{Name: "k8s-m", State: api.StateCreated})
	}))
	until(t, "it is absent", func() bool { return isAbsent(p.Look("n1", "k8s-m")) })
	before := told.all()
	p.Do("n1", "k8s-m", creation)
	until(t, "its end is reported", func() bool { return told.all() > before })
	for r := p.Look("n1", "k8s-m"); r.Machine == nil; r = p.Look("n1", "k8s-m") {
		if r.Known {
			t.Fatalf("it is %+v", r)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestACreationThatFailsIsTriedAfterPauses, although the machine is asked for in between.
func TestACreationThatFailsIsTriedAfterPauses(t *testing.T) {
	var creations atomic.Int32
	p, _ := pool(t)
	p.Follow(creating(t, func(http.ResponseWriter, *http.Request) {
		creations.Add(1)
		panic(http.ErrAbortHandler)
	}, absentMachine))
	until(t, "it is absent", func() bool { return isAbsent(p.Look("n1", "k8s-m")) })
	var told state.Progress
	began := time.Now()
	for time.Since(began) < time.Second { // as passes do, and more often
		if isAbsent(p.Look("n1", "k8s-m")) {
			if progress, _ := p.Do("n1", "k8s-m", creation); progress.Reason != "" {
				told = progress
			}
		}
		time.Sleep(time.Millisecond)
	}
	if n := int(creations.Load()); n < 3 || n > 4+int(time.Since(began)/short.Last) {
		t.Errorf("it was tried %d times", n)
	}
	if told.Reason != v1alpha1.ReasonRuntimeUnavailable {
		t.Errorf("got %+v", told)
	}
}

// TestWhoWasToldThatARuntimeIsAwayIsToldThatItIsBack, also if the grace has ended between two attempts to connect.
func TestWhoWasToldThatARuntimeIsAwayIsToldThatItIsBack(t *testing.T) {
	c := &calls{count: map[string]int{}}
	s := newSession(Options{Times: Defaults, Changed: c.changed}, Node{Name: "n1"}, nil)
	defer s.end()
	machines := []api.Machine{{Name: "k8s-m"}}
	if err := s.takeAll(t.Context(), machines); err != nil {
		t.Fatal(err)
	}
	before := c.all()
	if left := s.lose(errSilent); left <= 0 || c.all() != before {
		t.Fatalf("it is reported at once; %s are left", left)
	}
	s.lost = s.lost.Add(-Defaults.Grace)
	if r := s.look("k8s-m"); r.Reason == "" {
		t.Fatalf("it is %+v", r)
	}
	if err := s.takeAll(t.Context(), machines); err != nil || c.all() != before+1 {
		t.Errorf("%d were notified, %v", c.all()-before, err)
	}
}

// TestErrorsOfARuntimeWakeNoFasterThanIsAllowed.
func TestErrorsOfARuntimeWakeNoFasterThanIsAllowed(t *testing.T) {
	c := &calls{count: map[string]int{}}
	s := newSession(Options{Times: Defaults, Changed: c.changed}, Node{Name: "n1"}, nil)
	defer s.end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var err error
	for i := 0; err == nil; i++ {
		err = s.take(ctx, api.WatchEvent{Type: api.WatchError, Error: api.Errorf(api.CodeInternal, "%d", i)})
	}
	if most := changesBurst + 2*changesPerSecond; c.all() > most {
		t.Errorf("%d were notified, want %d at most", c.all(), most)
	}
}
