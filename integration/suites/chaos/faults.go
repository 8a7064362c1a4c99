package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
)

// Fault is a fault in the operator's requests to the API server of the management cluster.
type Fault string

// The faults.
const (
	// Calm is no fault.
	Calm Fault = "calm"
	// Trouble: some writes are rejected (409, 429, 500) or lost, or they are carried out and their answers are lost.
	Trouble Fault = "trouble"
	// Gone: no request is answered, and watches end.
	Gone Fault = "gone"
	// Slow: every request takes a while.
	Slow Fault = "slow"
	// Late: watches lag behind, as after a switch to an API server that lags.
	Late Fault = "late"
	// Paused: the operator is paused, and another one takes over. Then the first one continues where it stopped.
	Paused Fault = "paused"
	// Crash: the operator crashes at one of its next writes, before it or after it.
	Crash Fault = "crash"
)

const (
	// troubled is the share of writes that fail, slowness how long a request takes, and lateness how far watches lag
	// behind.
	troubled = 0.3
	slowness = 100 * time.Millisecond
	lateness = 2 * time.Second
)

var errGone = errors.New("the API server is gone")

// way is the connection of one operator to the API server.
type way struct {
	mu     sync.Mutex
	random *rand.Rand
	fault  Fault
	// writes is the number of writes until the crash. after says that the last one is carried out.
	writes  int
	after   bool
	crashed chan struct{}
	// open is closed while the operator is not paused.
	open chan struct{}
	// watches are the bodies of open watches.
	watches map[*watch]bool
}

func newWay(random *rand.Rand) *way {
	open := make(chan struct{})
	close(open)
	return &way{random: random, fault: Calm, crashed: make(chan struct{}), open: open, watches: map[*watch]bool{}}
}

// meet starts a fault and ends the one before.
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
			_ = body.ReadCloser.Close() // the reader gets an error
		}
	}
}

// crashAt makes the operator crash at its k-th write from now on. If after is set, that write is carried out first.
func (w *way) crashAt(k int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.writes, w.after = Crash, k, after
}

// die blocks all requests from now on.
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
		_ = body.ReadCloser.Close() // the reader gets an error
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

// verdict is what happens to a request. It waits, and then it gets an error or a status as its answer, or it is carried
// out. If mute is set, its answer is lost.
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

// late reports whether watches lag behind.
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

// Read returns what has arrived, with the delay of the fault Late.
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
