// Package chain runs the ordered handlers of a controller: forward while the object lives, backward while it is being
// deleted.
package chain

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// Handler owns one kind of object or one decision of a controller. T is the controller's snapshot.
type Handler[T any] interface {
	// Name is the handler's name in logs, metrics and conditions.
	Name() string
	// EnsureCreated brings the handler's part of the world to what the snapshot asks for.
	EnsureCreated(ctx context.Context, snapshot T) (Outcome, error)
	// EnsureDeleted removes the handler's part of the world and is Done once it is gone.
	EnsureDeleted(ctx context.Context, snapshot T) (Outcome, error)
}

// Link is a handler's place in a chain.
type Link[T any] struct {
	Handler Handler[T]
	// Needs names the handlers that must be Done before this one is run; on deletion it is the other way round: they are
	// run only when this one is gone.
	Needs []string
	// Follows names handlers that must have been run before this one, with whatever outcome; on deletion it is like Needs.
	Follows []string
}

// Chain is the order of work of a controller.
type Chain[T any] []Link[T]

// Result is what became of one handler in one run.
type Result struct {
	// Handler is the handler's name.
	Handler string
	// Outcome holds when Err is nil.
	Outcome Outcome
	// Err is why the handler failed.
	Err error
	// BlockedBy names the handlers for which this one was not run at all.
	BlockedBy []string
	// Duration is how long the handler ran.
	Duration time.Duration
}

// Done says whether the handler has nothing left to do.
func (r Result) Done() bool {
	return r.Err == nil && len(r.BlockedBy) == 0 && r.Outcome.State.finished()
}

// Configured says whether the handler has anything to tell: false when the user did not ask for what it does.
func (r Result) Configured() bool {
	return r.Err != nil || len(r.BlockedBy) > 0 || r.Outcome.State != StateNotConfigured
}

// Run runs the handlers in order, or backward when deleting, and returns one Result each, in chain order. A handler that
// fails or waits holds up only those that need it; one whose outcome is Store ends the run, the handlers after it being
// blocked by it.
func (c Chain[T]) Run(ctx context.Context, snapshot T, deleting bool) []Result {
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
		results[i] = run(ctx, link.Handler, snapshot, deleting, blocked)
		finished[link.Handler.Name()], ran[link.Handler.Name()] = results[i].Done(), len(blocked) == 0
		if results[i].Err == nil && results[i].Outcome.State == StateStore {
			stopped = link.Handler.Name()
		}
	}
	return results
}

func run[T any](ctx context.Context, h Handler[T], snapshot T, deleting bool, blocked []string) Result {
	result := Result{Handler: h.Name(), BlockedBy: blocked}
	if len(blocked) > 0 {
		return result
	}
	ensure := h.EnsureCreated
	if deleting {
		ensure = h.EnsureDeleted
	}
	start := time.Now()
	result.Outcome, result.Err = ensure(ctx, snapshot)
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

// needs lists what must be finished before link i is run in the given direction.
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

// before are the handlers that stand before this one.
func (l Link[T]) before() []string { return slices.Concat(l.Needs, l.Follows) }

// Validate says what is wrong with the chain itself: a name twice, or a need that does not stand before its link.
func (c Chain[T]) Validate() error {
	seen := map[string]bool{}
	var wrong []string
	for _, link := range c {
		name := link.Handler.Name()
		if seen[name] {
			wrong = append(wrong, name+" stands twice in the chain")
		}
		for _, need := range link.before() {
			if !seen[need] {
				wrong = append(wrong, name+" needs "+need+", which does not stand before it")
			}
		}
		seen[name] = true
	}
	if len(wrong) > 0 {
		return problem.Newf("InvalidChain", "%s", strings.Join(wrong, "; "))
	}
	return nil
}
