// Package chain runs the ordered handlers of a controller: forward while the object exists, backward while it is being
// deleted.
package chain

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Handler owns one kind of object or one decision of a controller. T is the controller's state.
type Handler[T any] interface {
	// Name is the handler's name in logs, metrics and conditions.
	Name() string
	// EnsureCreated creates and updates what the handler owns according to the state.
	EnsureCreated(ctx context.Context, state T) (Outcome, error)
	// EnsureDeleted deletes what the handler owns and is Done once it is gone.
	EnsureDeleted(ctx context.Context, state T) (Outcome, error)
}

// Link is the place of a handler in a chain, and all that a controller has to know of it.
type Link[T any] struct {
	Handler Handler[T]
	// Condition is the type of the condition for which the handler's results count. It may be empty for a controller
	// that has one condition.
	Condition string
	// Needs names the handlers that must be Done before this one runs. On deletion it is the other way round: they run
	// only when this one is Done.
	Needs []string
	// Follows names handlers that must have run before this one, with any outcome but Again. On deletion it is like
	// Needs.
	Follows []string
}

// Chain is the ordered handlers of a controller.
type Chain[T any] []Link[T]

// Result is the result of one handler in one run.
type Result struct {
	// Handler is the handler's name, and Area the condition type for which it counts.
	Handler, Area string
	// Outcome is valid if Err is nil.
	Outcome Outcome
	// Err is why the handler failed.
	Err error
	// BlockedBy names the handlers because of which this one was not run.
	BlockedBy []string
	// Duration is how long the handler ran.
	Duration time.Duration
}

// Done returns whether the handler has nothing left to do.
func (r Result) Done() bool {
	return r.Err == nil && len(r.BlockedBy) == 0 && r.Outcome.State.finished()
}

// is returns whether the handler has run without an error, with an outcome of the state.
func (r Result) is(state State) bool {
	return len(r.BlockedBy) == 0 && r.Err == nil && r.Outcome.State == state
}

// Repeats returns whether the results of a run say nothing yet, because the next one begins at once: a handler changed
// what the state was made from, and none has a decision to store.
func Repeats(results []Result) bool {
	some := func(state State) bool {
		return slices.ContainsFunc(results, func(r Result) bool { return r.is(state) })
	}
	return some(StateAgain) && !some(StateStore)
}

// IsProblem returns whether only a person can fix the result.
func (r Result) IsProblem() bool {
	_, ok := problem.As(r.Err)
	return ok
}

// Configured returns whether the handler has anything to report: false if the user did not request what it does.
func (r Result) Configured() bool {
	return r.Err != nil || len(r.BlockedBy) > 0 || r.Outcome.State != StateNotConfigured
}

// Run runs the handlers in order, or backward when deleting, and returns one Result for each, in chain order. A handler
// that fails or waits blocks only those that need it; one whose outcome is Store ends the run and blocks all handlers
// after it.
func (c Chain[T]) Run(ctx context.Context, state T, deleting bool) []Result {
	results := make([]Result, len(c))
	finished, ran := map[string]bool{}, map[string]bool{}
	stopped := ""
	for _, i := range c.order(deleting) {
		link := c[i]
		blocked := slices.DeleteFunc(c.needs(i, deleting), func(name string) bool { return finished[name] })
		if !deleting {
			blocked = append(blocked, slices.DeleteFunc(slices.Clone(link.Follows), func(name string) bool { return ran[name] })...)
		}
		if stopped != "" {
			blocked = []string{stopped}
		}
		results[i] = run(ctx, link.Handler, state, deleting, blocked)
		results[i].Area = link.Condition
		finished[link.Handler.Name()], ran[link.Handler.Name()] = results[i].Done(), len(blocked) == 0 && !results[i].is(StateAgain)
		if results[i].is(StateStore) {
			stopped = link.Handler.Name()
		}
	}
	return results
}

func run[T any](ctx context.Context, h Handler[T], state T, deleting bool, blocked []string) Result {
	result := Result{Handler: h.Name(), BlockedBy: blocked}
	if len(blocked) > 0 {
		return result
	}
	ensure := h.EnsureCreated
	if deleting {
		ensure = h.EnsureDeleted
	}
	start := time.Now()
	result.Outcome, result.Err = ensure(ctx, state)
	result.Duration = time.Since(start)
	return result
}

func (c Chain[T]) order(deleting bool) []int {
	order := make([]int, len(c))
	for i := range c {
		order[i] = i
	}
	if deleting {
		slices.Reverse(order)
	}
	return order
}

// needs returns what must be finished before link i runs in the given direction.
func (c Chain[T]) needs(i int, deleting bool) []string {
	if !deleting {
		return slices.Clone(c[i].Needs)
	}
	var dependents []string
	for _, other := range c {
		if slices.Contains(other.before(), c[i].Handler.Name()) {
			dependents = append(dependents, other.Handler.Name())
		}
	}
	return dependents
}

// before returns the handlers that must come before this one.
func (l Link[T]) before() []string { return slices.Concat(l.Needs, l.Follows) }

// Validate returns what is wrong with the chain itself: a duplicate name, or a need that does not come before its link.
func (c Chain[T]) Validate() error {
	seen := map[string]bool{}
	var wrong []string
	for _, link := range c {
		name := link.Handler.Name()
		if seen[name] {
			wrong = append(wrong, name+" is in the chain twice")
		}
		for _, need := range link.before() {
			if !seen[need] {
				wrong = append(wrong, name+" needs "+need+", which does not come before it")
			}
		}
		seen[name] = true
	}
	if len(wrong) > 0 {
		return problem.Newf("InvalidChain", "%s", strings.Join(wrong, "; "))
	}
	return nil
}
