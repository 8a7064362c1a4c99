package chain

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// firstTurn is how long a handler that asks a workload cluster may take, and laterTurn how long after it hung: an API server may wait
	// half a minute for a webhook that does not answer, and go on without it.
	firstTurn, laterTurn = 20 * time.Second, 40 * time.Second
	// slow is how long a handler that fails may take without resting: a webhook that is gone has the API server fail after ten seconds.
	slow = 5 * time.Second
	// firstRest and lastRest bound for how long a handler that hangs is not run. The second is much longer than a turn, so that many clusters
	// that hang leave the others most of the controller's time.
	firstRest, lastRest = 10 * time.Second, 5 * time.Minute
)

// ReasonHangs says that a handler did not end in time, or took long to fail, and is not run for a while.
const ReasonHangs = "Hangs"

// resting is the outcome of a handler that is run again after a pause.
func resting(pause time.Duration) Outcome {
	return Wait(ReasonHangs, "the workload cluster does not answer requests in time, perhaps because of a webhook; "+
		"it is asked again after a pause of at most five minutes", pause)
}

// Turns let handlers ask somebody who may hang, and others have their turn: one that does not end in time, or takes long to fail, rests for a
// while.
// They are safe for concurrent use.
type Turns[T any] struct {
	clock clock.PassiveClock
	// of names the object that a snapshot is of.
	of func(T) string

	mu    sync.Mutex
	rests map[turn]rest
}

// turn is a handler's at one object.
type turn struct{ object, handler string }

// rest is a handler's pause.
type rest struct {
	until time.Time
	next  time.Duration
}

// NewTurns makes Turns; of names the object that a snapshot is of.
func NewTurns[T any](of func(T) string, c clock.PassiveClock) *Turns[T] {
	return &Turns[T]{clock: c, of: of, rests: map[turn]rest{}}
}

// Limit makes a handler one that rests when it hangs. Its deletion is not limited.
func (t *Turns[T]) Limit(h Handler[T]) Handler[T] { return limited[T]{Handler: h, turns: t} }

// Forget forgets an object that is gone.
func (t *Turns[T]) Forget(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.rests {
		if key.object == object {
			delete(t.rests, key)
		}
	}
}

// begin returns how long a turn may take, or for how long the handler still rests.
func (t *Turns[T]) begin(key turn) (limit, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, hung := t.rests[key]
	if !hung {
		return firstTurn, 0
	}
	return laterTurn, r.until.Sub(t.clock.Now())
}

// end notes that a turn has ended, and returns for how long the handler rests if it hung, or was slow to fail.
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

// EnsureCreated runs the handler, unless it rests. A pass that ends meanwhile says nothing of the handler.
func (l limited[T]) EnsureCreated(ctx context.Context, snapshot T) (Outcome, error) {
	key := turn{object: l.turns.of(snapshot), handler: l.Name()}
	limit, pause := l.turns.begin(key)
	if pause > 0 {
		return resting(pause), nil
	}
	began := l.turns.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	outcome, err := l.Handler.EnsureCreated(bounded, snapshot)
	if ctx.Err() != nil {
		return outcome, err
	}
	if pause := l.turns.end(key, err != nil && l.turns.clock.Since(began) >= slow); pause > 0 {
		return resting(pause), nil
	}
	return outcome, err
}
