package reconciler

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Waker makes a controller run for objects without an event. It does nothing before the controller has been started.
type Waker struct{ queue atomic.Pointer[Queue] }

// Source is watched by the controller.
func (w *Waker) Source() source.Source {
	return source.Func(func(_ context.Context, q Queue) error {
		w.queue.Store(&q)
		return nil
	})
}

// wakeTimeout bounds a list of a cache.
const wakeTimeout = 5 * time.Second

// All makes the controller run for all objects of a kind. list is of that kind, and reader has a cache.
func (w *Waker) All(reader client.Reader, list client.ObjectList, which ...client.ListOption) {
	q := w.queue.Load()
	if q == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	if err := EnqueueAll(ctx, *q, reader, list, which...); err != nil {
		log.Log.Error(err, "objects are not reconciled before the next interval")
	}
}

// EnqueueAll adds all objects of a list to a queue.
func EnqueueAll(ctx context.Context, q Queue, reader client.Reader, list client.ObjectList, which ...client.ListOption) error {
	if err := reader.List(ctx, list, append(which, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(item.(client.Object))})
		return nil
	})
}

// Changed passes over updates that change nothing but the version of an object, as far as the cache shows it.
type Changed struct{ predicate.Funcs }

// Update implements predicate.Predicate.
func (Changed) Update(e event.UpdateEvent) bool {
	if e.ObjectOld == nil || e.ObjectNew == nil {
		return true
	}
	before, after := e.ObjectOld.DeepCopyObject().(client.Object), e.ObjectNew.DeepCopyObject().(client.Object)
	for _, object := range []client.Object{before, after} {
		object.SetResourceVersion("")
		object.SetManagedFields(nil)
	}
	return !equality.Semantic.DeepEqual(before, after)
}

// Jitter returns a time that differs from the given one by a tenth at most, so that objects that were queued together do
// not stay together.
func Jitter(interval time.Duration) time.Duration {
	const tenth = 10
	return wait.Jitter(interval-interval/tenth, 2.0/(tenth-1))
}

// Sooner returns the shorter of two waits, of which zero means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
