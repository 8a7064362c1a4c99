package chain

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// firstTurn is how long a handler that calls a workload cluster may take, and laterTurn how long after it has hung:
	// an API server may wait half a minute for a webhook that does not respond, and continue without it.
	firstTurn, laterTurn = 20 * time.Second, 40 * time.Second
	// slow is how long a handler that fails may take without a pause: if a webhook is gone the API server fails after
	// ten seconds.
	slow = 5 * time.Second
	// firstRest and lastRest bound the pause of a handler that hangs. The second is much longer than a turn, so that
	// many clusters that hang leave the others most of the controller's time.
	firstRest, lastRest = 10 * time.Second, 5 * time.Minute
)

// ReasonRequestTimeout means that a handler did not end in time, or took long to fail, and is paused.
const ReasonRequestTimeout = "RequestTimeout"

// resting returns the outcome of a handler that runs again after a pause.
func resting(pause time.Duration) Outcome {
	return Wait(ReasonRequestTimeout, "the workload cluster does not answer requests in time, perhaps because of a webhook; "+
		"the next attempt follows within five minutes", pause)
}

// Turns limit the time of handlers that call a server which may hang, so that other objects are not blocked: a handler
// that does not end in time, or takes long to fail, is paused for some time. They are safe for concurrent use.
type Turns[T any] struct {
	clock clock.PassiveClock
	// of returns the name of the object that a state is of.
	of func(T) string

	mu    sync.Mutex
	rests map[turn]rest
}

// turn identifies a handler for one object.
type turn struct{ object, handler string }

// rest is the pause of a handler.
type rest struct {
	until time.Time
	next  time.Duration
}

// NewTurns returns Turns; of returns the name of the object that a state is of.
func NewTurns[T any](of func(T) string, c clock.PassiveClock) *Turns[T] {
	return &Turns[T]{clock: c, of: of, rests: map[turn]rest{}}
}

// Limit returns a handler that is paused if it hangs. Its deletion is not limited.
func (t *Turns[T]) Limit(h Handler[T]) Handler[T] { return limited[T]{Handler: h, turns: t} }

// Forget removes an object that is gone.
func (t *Turns[T]) Forget(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.rests {
		if key.object == object {
			delete(t.rests, key)
		}
	}
}

// begin returns how long a turn may take, or how long the handler is still paused.
func (t *Turns[T]) begin(key turn) (limit, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, hung := t.rests[key]
	if !hung {
		return firstTurn, 0
	}
	return laterTurn, r.until.Sub(t.clock.Now())
}

// end records that a turn has ended, and returns for how long the handler is paused if it hung, or was slow to fail.
func (t *Turns[T]) end(key turn, hung bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !hung {
		delete(t.rests, key)
		return 0
	}
	pause := max(t.rests[key].next, firstRest)
	t.rests[key] = rest{until: t.clock.Now().Add(pause), next: min(2*pause, lastRest)}
	return pause
}

type limited[T any] struct {
	Handler[T]
	turns *Turns[T]
}

// EnsureCreated runs the handler, unless it is paused. If the pass itself ends in the meantime, that says nothing about
// the handler.
func (l limited[T]) EnsureCreated(ctx context.Context, state T) (Outcome, error) {
	key := turn{object: l.turns.of(state), handler: l.Name()}
	limit, pause := l.turns.begin(key)
	if pause > 0 {
		return resting(pause), nil
	}
	began := l.turns.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	outcome, err := l.Handler.EnsureCreated(bounded, state)
	if ctx.Err() != nil {
		return outcome, err
	}
	if pause := l.turns.end(key, err != nil && l.turns.clock.Since(began) >= slow); pause > 0 {
		return resting(pause), nil
	}
	return outcome, err
}
