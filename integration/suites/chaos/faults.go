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
	// Errors: some writes are rejected (409, 429, 500) or lost, or they are carried out and their answers are lost.
	Errors Fault = "errors"
	// Gone: no request is answered, and watches end.
	Gone Fault = "gone"
	// Slow: every request takes some time.
	Slow Fault = "slow"
	// Late: watches lag behind, as after a switch to an API server that lags.
	Late Fault = "late"
	// Paused: the operator is paused, and another one takes over. Then the first one continues where it stopped.
	Paused Fault = "paused"
	// Crash: the operator crashes at one of its next writes, before it or after it.
	Crash Fault = "crash"
)

const (
	// errorShare is the share of writes that fail, slowness how long a request takes, and lateness how far watches lag
	// behind.
	errorShare = 0.3
	slowness   = 100 * time.Millisecond
	lateness   = 2 * time.Second
)

var errGone = errors.New("the API server is gone")

// connection is the connection of one operator to the API server.
type connection struct {
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

func newConnection(random *rand.Rand) *connection {
	open := make(chan struct{})
	close(open)
	return &connection{random: random, fault: Calm, crashed: make(chan struct{}), open: open, watches: map[*watch]bool{}}
}

// inject starts a fault and ends the one before.
func (c *connection) inject(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == Paused && f != Paused {
		close(c.open)
	}
	if f == Paused && c.fault != Paused {
		c.open = make(chan struct{})
	}
	c.fault = f
	if f == Crash {
		c.writes, c.after = 1+c.random.IntN(12), c.random.IntN(2) == 0
	}
	if f == Gone {
		for body := range c.watches {
			_ = body.ReadCloser.Close() // the reader gets an error
		}
	}
}

// crashAt makes the operator crash at its k-th write from now on. If after is set, that write is carried out first.
func (c *connection) crashAt(k int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.writes, c.after = Crash, k, after
}

// crash blocks all requests from now on.
func (c *connection) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.crashLocked()
}

// crashLocked is crash for callers that hold the lock.
func (c *connection) crashLocked() {
	select {
	case <-c.crashed:
		return
	default:
	}
	close(c.crashed)
	if c.fault == Paused {
		close(c.open)
		c.fault = Crash
	}
	for body := range c.watches {
		_ = body.ReadCloser.Close() // the reader gets an error
	}
}

func (c *connection) transport(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		verdict := c.decide(request)
		if err := c.wait(request.Context(), verdict); err != nil {
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
			response.Body = c.follow(response.Body)
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

func (c *connection) decide(request *http.Request) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := verdict{open: c.open}
	select {
	case <-c.crashed:
		v.err = lab.ErrCrashed
		return v
	default:
	}
	write := request.Method != http.MethodGet
	switch {
	case c.fault == Gone:
		v.err = errGone
	case c.fault == Slow:
		v.delay = slowness
	case c.fault == Errors && write && c.random.Float64() < errorShare:
		switch kinds := []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, 0, -1}; kinds[c.random.IntN(len(kinds))] {
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
	case c.fault == Crash && write:
		if c.writes--; c.writes <= 0 {
			if v.mute = lab.ErrCrashed; !c.after {
				v.err = lab.ErrCrashed
			}
			c.crashLocked()
		}
	}
	return v
}

func (c *connection) wait(ctx context.Context, v verdict) error {
	select {
	case <-v.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	pause(ctx, v.delay)
	return ctx.Err()
}

func (c *connection) follow(body io.ReadCloser) io.ReadCloser {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &watch{ReadCloser: body, connection: c}
	c.watches[f] = true
	return f
}

// late reports whether watches lag behind.
func (c *connection) late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault == Late
}

// watch is the body of a watch.
type watch struct {
	io.ReadCloser
	connection *connection
}

// Read returns what has arrived, with the delay of the fault Late.
func (w *watch) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	for until := time.Now().Add(lateness); err == nil && w.connection.late() && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
	}
	return n, err
}

// Close ends the watch.
func (w *watch) Close() error {
	w.connection.mu.Lock()
	defer w.connection.mu.Unlock()
	delete(w.connection.watches, w)
	return w.ReadCloser.Close()
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip makes a request.
func (f transport) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
