// Package reconciler is the loop that the controllers share: get the object, decide whether to reconcile it, add the
// finalizer, gather what the chain decides on, follow what else there is to observe, run the chain, store its results, and
// remove the finalizer at the end.
package reconciler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// definitionsLook is how soon the loop checks again, without a request, whether an outdated definition is current.
const definitionsLook = 5 * time.Second

// Finalizers adds and removes finalizers of objects. It is not an error if an object whose finalizer is removed is gone.
type Finalizers interface {
	AddFinalizers(ctx context.Context, object client.Object, names ...string) error
	RemoveFinalizer(ctx context.Context, object client.Object, name string) error
}

// Controller is the part of the loop that is specific to one controller. O is the kind of object, and T the state that
// it gathers.
type Controller[O client.Object, T any] interface {
	// Get reads the object of a request. found is false for an object that is gone, and for one that the controller
	// ignores.
	Get(ctx context.Context, request reconcile.Request) (object O, found bool, err error)
	// Gather reads what the chain decides on. It changes nothing.
	Gather(ctx context.Context, object O) (T, error)
	// Store writes the results of a run of the chain.
	Store(ctx context.Context, object O, state T, results []chain.Result) error
	// Again returns when to reconcile the object without an event, zero for never. after is what the chain requests.
	Again(state T, after time.Duration) time.Duration
}

// Loop runs the chain of one controller.
type Loop[O client.Object, T any] struct {
	// Name is the controller's name in metrics.
	Name       string
	Controller Controller[O, T]
	Chain      chain.Chain[T]
	// Finalizer is removed from an object when the chain has deleted everything. It is empty for a controller that
	// leaves finalizers to its chain, which then runs forward for objects that are being deleted too.
	Finalizer string
	// Adds are the finalizers that are added to objects before anything else is done. One controller adds those of all
	// controllers of a kind, so that a new object costs one write and not one for each.
	Adds       []string
	Finalizers Finalizers
	// Outdated returns what the definition of a kind lacks: nothing is reconciled then. It is nil if the definitions
	// are known to be current.
	Outdated func(ctx context.Context) string

	// Follow begins or ends to follow what is not in a cache, such as a workload cluster, once the state says where that
	// is. It does not wait. If it returns true, the state is gathered again, because something else may be known then. It
	// is nil for a controller that observes nothing else.
	Follow func(ctx context.Context, state T) (changed bool, err error)

	outcomes chain.Outcomes

	mu sync.Mutex
	// repeated are how many passes over an object, one after the other, were repeated before anything was stored.
	repeated map[string]int
}

// mostRepeats is how many passes in a row are repeated without storing what became of them: enough for keys, then
// certificates. If a handler never comes to rest, the status says so.
const mostRepeats = 4

// repeats returns whether a pass is repeated before its results are stored.
func (l *Loop[O, T]) repeats(request string, results []chain.Result) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !chain.Repeats(results) || l.repeated[request] >= mostRepeats {
		delete(l.repeated, request)
		return false
	}
	if l.repeated == nil {
		l.repeated = map[string]int{}
	}
	l.repeated[request]++
	return true
}

// Reconcile takes one object through the loop. On an error the caller retries with back-off. A pass that is interrupted
// because the operator stops is no error: the next leader repeats it.
func (l *Loop[O, T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := l.reconcile(ctx, request)
	if errors.Is(ctx.Err(), context.Canceled) {
		return reconcile.Result{}, nil
	}
	return result, err
}

func (l *Loop[O, T]) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object, found, err := l.Controller.Get(ctx, request)
	if err != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	if !found {
		chain.Forget(l.Name, request.String())
		l.outcomes.Forget(request.String())
		l.repeats(request.String(), nil)
		return reconcile.Result{}, nil
	}
	if l.Outdated != nil && l.Outdated(ctx) != "" {
		return reconcile.Result{RequeueAfter: definitionsLook}, nil
	}
	deleting := l.Finalizer != "" && object.GetDeletionTimestamp() != nil
	if !deleting && len(l.Adds) > 0 {
		held := slices.Contains(object.GetFinalizers(), l.Finalizer)
		if err := l.Finalizers.AddFinalizers(ctx, object, l.Adds...); err != nil {
			if !held || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return reconcile.Result{}, microerror.Mask(err)
			}
			// The finalizers of others are missing, which is no reason to leave the object alone.
			result, passErr := l.pass(ctx, request, object, deleting)
			return result, errors.Join(passErr, err)
		}
	}
	return l.pass(ctx, request, object, deleting)
}

// pass gathers, runs the chain and stores what became of it.
func (l *Loop[O, T]) pass(ctx context.Context, request reconcile.Request, object O, deleting bool) (reconcile.Result, error) {
	state, err := l.observe(ctx, object)
	if err != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	began := time.Now()
	results := l.Chain.Run(ctx, state, deleting)
	chain.ObservePass(l.Name, object.GetDeletionTimestamp() != nil, time.Since(began))
	chain.Observe(l.Name, request.String(), deleting, results)
	repeats := l.repeats(request.String(), results)
	if !repeats && !errors.Is(ctx.Err(), context.Canceled) {
		l.outcomes.Log(log.FromContext(ctx), request.String(), results)
	}
	if deleting && !slices.ContainsFunc(results, func(r chain.Result) bool { return !r.Done() }) {
		return reconcile.Result{}, microerror.Mask(l.Finalizers.RemoveFinalizer(ctx, object, l.Finalizer))
	}
	if !repeats {
		if err := l.Controller.Store(ctx, object, state, results); err != nil {
			return reconcile.Result{}, microerror.Mask(err)
		}
	}
	after, err := chain.Next(results)
	if err != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	return reconcile.Result{RequeueAfter: l.Controller.Again(state, after)}, nil
}

// observe gathers the state, a second time if something begins or ends to be followed.
func (l *Loop[O, T]) observe(ctx context.Context, object O) (T, error) {
	state, err := l.Controller.Gather(ctx, object)
	if err != nil || l.Follow == nil {
		return state, err
	}
	if changed, err := l.Follow(ctx, state); err != nil || !changed {
		return state, err
	}
	return l.Controller.Gather(ctx, object)
}
