package apply

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/giantswarm/microerror"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Desired is what a handler wants.
type Desired struct {
	// Objects are to exist as given here.
	Objects []client.Object
	// Keep are objects that are not changed; only kind and name matter.
	Keep []client.Object
	// Wait is set if the handler has to run again to reach the desired state.
	Wait *chain.Outcome
	// Problem says why the handler does not create everything that the user requested, although it knows what is to
	// exist: the rest is pruned.
	Problem error
	// NotConfigured is set if the user did not request what the handler creates, so that there is nothing to report.
	NotConfigured bool
}

// Owned is what the engine needs to know of a state: the owner of the objects, and where they lie.
type Owned interface {
	// Owner is the owner of the objects of a handler.
	Owner(handler string) ownership.Owner
	// Places are where its objects are.
	Places() Places
}

// Resource is a handler that is one function from a state to objects.
type Resource[T Owned] struct {
	// Handler is the name of the handler.
	Handler string
	// Kinds are all kinds that Build may return.
	Kinds []client.Object
	// Build returns what is to exist. It is pure, except that handlers of keys issue those that are missing. If it
	// returns an error as well, what it could build is applied and nothing is pruned.
	Build func(T) (Desired, error)
	// AgainOnCreate says that other handlers use what is stored: once an object was created, they wait for the next pass,
	// which observes it.
	AgainOnCreate bool
	// CreateOnly is as in Set.
	CreateOnly bool
	// Remains returns an object that a deletion waits for besides those of the owner, nil for none, and whether it is the
	// owner's to delete, although its annotations do not say so. It is nil for handlers without such objects.
	Remains func(T) (left client.Object, deletes bool)
	// Ends returns objects that are deleted once everything is as desired: exactly these, and not others
	// of its name. It is nil for handlers that end nothing.
	Ends func(T) []client.Object
	// Note returns a message and its keys and values, which are logged about an object that was created or updated, as
	// the API server returned it, because of a state. The message is empty for nothing. Note is nil for handlers whose
	// objects the engine's own log describes well enough.
	Note func(T, client.Object) (message string, keysAndValues []any)
	// KeepUnwanted keeps objects that are no longer wanted until the cluster is deleted, because they hold data.
	KeepUnwanted bool
}

// Handle makes the resource a handler of a chain.
func (r Resource[T]) Handle(e *Engine) chain.Handler[T] { return &handler[T]{Resource: r, engine: e} }

// Declares is a handler that is a resource, or wraps one.
type Declares[T Owned] interface {
	Declared() Resource[T]
}

// Resources returns the resources among the handlers of a chain, in its order.
func Resources[T Owned](c chain.Chain[T]) []Resource[T] {
	var all []Resource[T]
	for _, link := range c {
		if h, ok := link.Handler.(Declares[T]); ok {
			all = append(all, h.Declared())
		}
	}
	return all
}

// Kinds returns the kinds of object that resources create, each once.
func Kinds[T Owned](resources []Resource[T]) []client.Object {
	var kinds []client.Object
	for _, resource := range resources {
		for _, kind := range resource.Kinds {
			same := func(other client.Object) bool { return reflect.TypeOf(other) == reflect.TypeOf(kind) }
			if !slices.ContainsFunc(kinds, same) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

type handler[T Owned] struct {
	Resource[T]
	engine *Engine
	// everywhere says that the engine writes to a cluster in which everything is the owner's.
	everywhere bool
}

func (h *handler[T]) places(state T) Places {
	if h.everywhere {
		return Places{Everywhere: true}
	}
	return state.Places()
}

// Name is the handler's name.
func (h *handler[T]) Name() string { return h.Handler }

// Declared returns the resource.
func (h *handler[T]) Declared() Resource[T] { return h.Resource }

// EnsureCreated applies what Build returns and prunes the rest.
func (h *handler[T]) EnsureCreated(ctx context.Context, state T) (chain.Outcome, error) {
	desired, buildErr := h.Build(state)
	set := Set{Owner: state.Owner(h.Handler), Places: h.places(state), Objects: desired.Objects, Keep: desired.Keep, CreateOnly: h.CreateOnly}
	if buildErr == nil && !h.KeepUnwanted {
		set.Kinds = h.Kinds
	}
	created := false
	set.Applied = func(object client.Object) { h.note(ctx, state, object) }
	set.Created = func(object client.Object) {
		created = true
		h.note(ctx, state, object)
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
	if created && h.AgainOnCreate {
		return chain.Again("objects were created"), nil
	}
	if desired.Wait != nil {
		return *desired.Wait, nil
	}
	if desired.NotConfigured {
		return chain.NotConfigured(), nil
	}
	return chain.Done(), h.end(ctx, state)
}

func (h *handler[T]) note(ctx context.Context, state T, object client.Object) {
	if h.Note == nil {
		return
	}
	if message, keysAndValues := h.Note(state, object); message != "" {
		log.FromContext(ctx).Info(message, keysAndValues...)
	}
}

// end deletes what Ends returns.
func (h *handler[T]) end(ctx context.Context, state T) error {
	if h.Ends == nil {
		return nil
	}
	for _, object := range h.Ends(state) {
		if err := h.engine.deleteOne(ctx, verbEnd, object, state.Owner(h.Handler)); err != nil {
			return err
		}
	}
	return nil
}

// EnsureDeleted deletes what the handler created and waits until it is gone.
func (h *handler[T]) EnsureDeleted(ctx context.Context, state T) (chain.Outcome, error) {
	remaining, err := h.engine.Delete(ctx, state.Owner(h.Handler), h.places(state), h.Kinds)
	if err != nil {
		return chain.Outcome{}, err
	}
	if len(remaining) == 0 && h.Remains != nil {
		if remaining, err = h.deleteRemains(ctx, state); err != nil {
			return chain.Outcome{}, err
		}
	}
	if len(remaining) > 0 {
		return chain.Wait("Deleting", "waits until gone: "+strings.Join(remaining, ", "), terminatingRetry), nil
	}
	return chain.Done(), nil
}

// deleteRemains deletes what else is left, if it is the owner's to delete. It returns it as Delete does.
func (h *handler[T]) deleteRemains(ctx context.Context, state T) ([]string, error) {
	left, deletes := h.Remains(state)
	if left == nil {
		return nil, nil
	}
	if deletes {
		if err := h.engine.deleteOne(ctx, "delete", left, state.Owner(h.Handler)); err != nil {
			return nil, err
		}
	}
	_, ref, err := h.engine.identify(left)
	return []string{ref}, microerror.Mask(err)
}

// terminatingRetry is after how long a handler checks again, without an event, whether objects are gone.
const terminatingRetry = 30 * time.Second
