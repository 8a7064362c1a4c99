package apply

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Desired is what a handler wants.
type Desired struct {
	// Objects are to exist as they are here.
	Objects []client.Object
	// Keep are objects that stay as they are; only kind and name count.
	Keep []client.Object
	// Wait is set when the handler has to come back to get all it wants.
	Wait *chain.Outcome
	// Problem is why the handler does not make all that the user asked for, although it knows what is to exist: the rest is pruned.
	Problem error
	// NotConfigured is set when the user did not ask for what the handler makes: there is nothing to tell about it.
	NotConfigured bool
}

// Owned is what the engine needs to know of a snapshot: whose objects these are, and where they lie.
type Owned interface {
	// Owner is the owner of the objects of a handler.
	Owner(handler string) key.Owner
	// Places are where its objects are.
	Places() Places
}

// Resource is a handler that is one pure function from a snapshot to objects.
type Resource[T Owned] struct {
	// Handler is the name of the handler.
	Handler string
	// Kinds are all kinds that Build may return.
	Kinds []client.Object
	// Build returns what is to exist. When it returns an error as well, what it could build is applied and nothing pruned.
	Build func(T) (Desired, error)
	// Created is told of what was made, as the API server has it, for handlers that come later in the pass; may be nil.
	Created func(T, client.Object)
	// CreateOnly: see Set.
	CreateOnly bool
	// KeepUnwanted leaves objects that are no longer wanted until the cluster is deleted, for they hold data.
	KeepUnwanted bool
}

// Handle makes the resource a handler of a chain.
func (r Resource[T]) Handle(e *Engine) chain.Handler[T] { return &handler[T]{Resource: r, engine: e} }

type handler[T Owned] struct {
	Resource[T]
	engine *Engine
	// everywhere says that the engine writes to a cluster of which everything is the owner's.
	everywhere bool
}

func (h *handler[T]) places(snapshot T) Places {
	if h.everywhere {
		return Places{Everywhere: true}
	}
	return snapshot.Places()
}

// Name is the handler's name.
func (h *handler[T]) Name() string { return h.Handler }

// EnsureCreated applies what Build returns and prunes the rest.
func (h *handler[T]) EnsureCreated(ctx context.Context, snapshot T) (chain.Outcome, error) {
	desired, buildErr := h.Build(snapshot)
	set := Set{Owner: snapshot.Owner(h.Handler), Places: h.places(snapshot), Objects: desired.Objects, Keep: desired.Keep, CreateOnly: h.CreateOnly}
	if buildErr == nil && !h.KeepUnwanted {
		set.Kinds = h.Kinds
	}
	if h.Created != nil {
		set.Created = func(object client.Object) { h.Created(snapshot, object) }
	}
	if err := h.engine.Apply(ctx, set); err != nil {
		return chain.Outcome{}, err
	}
	if buildErr != nil {
		return chain.Outcome{}, buildErr
	}
	if desired.Problem != nil {
		return chain.Outcome{}, desired.Problem
	}
	if desired.Wait != nil {
		return *desired.Wait, nil
	}
	if desired.NotConfigured {
		return chain.NotConfigured(), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted deletes what the handler made and waits until it is gone.
func (h *handler[T]) EnsureDeleted(ctx context.Context, snapshot T) (chain.Outcome, error) {
	remaining, err := h.engine.Delete(ctx, snapshot.Owner(h.Handler), h.places(snapshot), h.Kinds)
	if err != nil {
		return chain.Outcome{}, err
	}
	if len(remaining) > 0 {
		return chain.Wait("Deleting", "waits until gone: "+strings.Join(remaining, ", "), terminatingRetry), nil
	}
	return chain.Done(), nil
}

// terminatingRetry bounds how long a handler waits for objects to go without an event.
const terminatingRetry = 30 * time.Second
