package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/lab"
)

// Fault is what an operator meets on its way to the API server of the management cluster.
type Fault string

// Faults.
const (
	// Calm is none.
	Calm Fault = "calm"
	// Trouble: some writes are refused (409, 429, 500), are lost, or are carried out and their answers lost.
	Trouble Fault = "trouble"
	// Gone: nothing is answered, and watches end.
	Gone Fault = "gone"
	// Slow: everything takes a while.
	Slow Fault = "slow"
	// Late: watches lag behind, as after a switch to an API server that is behind.
	Late Fault = "late"
	// Paused: the operator stands still, and another one takes its place. Then it goes on with what it was about to do.
	Paused Fault = "paused"
	// Crash: the operator ends at one of its next writes, before it or after it.
	Crash Fault = "crash"
)

const (
	// troubled is the share of writes that meet trouble, slowness how long a request takes, lateness how far watches lag behind.
	troubled = 0.3
	slowness = 100 * time.Millisecond
	lateness = 2 * time.Second
)

var errGone = errors.New("the API server is gone")

// way is the way of one operator to the API server.
type way struct {
	mu     sync.Mutex
	random *rand.Rand
	fault  Fault
	// writes is how many are left until the crash; after says that the last one is carried out.
	writes  int
	after   bool
	crashed chan struct{}
	// open is closed while nothing is paused.
	open chan struct{}
	// watches are the bodies of open ones.
	watches map[*watch]bool
}

func newWay(random *rand.Rand) *way {
	open := make(chan struct{})
	close(open)
	return &way{random: random, fault: Calm, crashed: make(chan struct{}), open: open, watches: map[*watch]bool{}}
}

// meet begins a fault and ends the one before.
func (w *way) meet(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == Paused && f != Paused {
		close(w.open)
	}
	if f == Paused && w.fault != Paused {
		w.open = make(chan struct{})
	}
	w.fault = f
	if f == Crash {
		w.writes, w.after = 1+w.random.IntN(12), w.random.IntN(2) == 0
	}
	if f == Gone {
		for body := range w.watches {
			_ = body.ReadCloser.Close() // whoever reads gets an error
		}
	}
}

// crashAt has the operator crash at the k-th write from now on, or after it was carried out.
func (w *way) crashAt(k int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.writes, w.after = Crash, k, after
}

// die lets nothing through any more.
func (w *way) die() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *way) end() {
	select {
	case <-w.crashed:
		return
	default:
	}
	close(w.crashed)
	if w.fault == Paused {
		close(w.open)
		w.fault = Crash
	}
	for body := range w.watches {
		_ = body.ReadCloser.Close() // whoever reads gets an error
	}
}

func (w *way) transport(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		verdict := w.judge(request)
		if err := w.wait(request.Context(), verdict); err != nil {
			return nil, err
		}
		if verdict.err != nil {
			return nil, verdict.err
		}
		if verdict.status != 0 {
			return lab.Refusal(request, verdict.status), nil
		}
		response, err := next.RoundTrip(request)
		if err == nil && verdict.mute != nil {
			_, _ = io.Copy(io.Discard, response.Body) // the answer is lost on purpose
			_ = response.Body.Close()
			return nil, verdict.mute
		}
		if err == nil && request.URL.Query().Get("watch") != "" {
			response.Body = w.follow(response.Body)
		}
		return response, err
	})
}

// verdict is what becomes of a request: it waits, and then it is answered with an error or a status, or it is carried out, its
// answer being lost if mute is set.
type verdict struct {
	open      <-chan struct{}
	delay     time.Duration
	err, mute error
	status    int
}

func (w *way) judge(request *http.Request) verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := verdict{open: w.open}
	select {
	case <-w.crashed:
		v.err = lab.ErrCrashed
		return v
	default:
	}
	write := request.Method != http.MethodGet
	switch {
	case w.fault == Gone:
		v.err = errGone
	case w.fault == Slow:
		v.delay = slowness
	case w.fault == Trouble && write && w.random.Float64() < troubled:
		switch kinds := []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, 0, -1}; kinds[w.random.IntN(len(kinds))] {
		case 0:
			v.err = errGone
		case -1:
			v.mute = errGone
		case http.StatusConflict:
			v.status = http.StatusConflict
		case http.StatusTooManyRequests:
			v.status = http.StatusTooManyRequests
		default:
			v.status = http.StatusInternalServerError
		}
	case w.fault == Crash && write:
		if w.writes--; w.writes <= 0 {
			if v.mute = lab.ErrCrashed; !w.after {
				v.err = lab.ErrCrashed
			}
			w.end()
		}
	}
	return v
}

func (w *way) wait(ctx context.Context, v verdict) error {
	select {
	case <-v.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	pause(ctx, v.delay)
	return ctx.Err()
}

func (w *way) follow(body io.ReadCloser) io.ReadCloser {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &watch{ReadCloser: body, way: w}
	w.watches[f] = true
	return f
}

// late says whether watches lag behind.
func (w *way) late() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault == Late
}

// watch is the body of a watch.
type watch struct {
	io.ReadCloser
	way *way
}

// Read reads what has come, perhaps later.
func (w *watch) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	for until := time.Now().Add(lateness); err == nil && w.way.late() && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
	return n, err
}

// Close ends the watch.
func (w *watch) Close() error {
	w.way.mu.Lock()
	defer w.way.mu.Unlock()
	delete(w.way.watches, w)
	return w.ReadCloser.Close()
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip makes a request.
func (f transport) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
