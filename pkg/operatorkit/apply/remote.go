package apply

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// HandleIn makes the resource a handler that writes to another cluster. engine returns the engine of that cluster, nil
// while it cannot be reached. On deletion nothing is deleted there, because the other cluster is deleted as a whole.
func (r Resource[T]) HandleIn(engine func(T) *Engine) chain.Handler[T] {
	return &remote[T]{resource: r, engine: engine}
}

type remote[T Owned] struct {
	resource Resource[T]
	engine   func(T) *Engine
}

// Name is the handler's name.
func (r *remote[T]) Name() string { return r.resource.Handler }

// EnsureCreated applies what Build returns and prunes the rest, as soon as the other cluster can be reached.
func (r *remote[T]) EnsureCreated(ctx context.Context, state T) (chain.Outcome, error) {
	engine := r.engine(state)
	if engine == nil {
		return chain.Wait("NotConnected", "the connection to the workload cluster was lost", 0), nil
	}
	return (&handler[T]{Resource: r.resource, engine: engine, everywhere: true}).EnsureCreated(ctx, state)
}

// EnsureDeleted has nothing to do.
func (r *remote[T]) EnsureDeleted(context.Context, T) (chain.Outcome, error) {
	return chain.Done(), nil
}
