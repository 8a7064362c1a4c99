package late

import (
	"context"

	"github.com/giantswarm/microerror"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// subscription is a controller that follows one kind of a session.
type subscription struct {
	kind       client.Object
	handler    handler.EventHandler
	predicates []predicate.Predicate
	// ctx and queue are those of the controller.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source returns a source of events of a kind of the session, for a controller. It has events while there is a session,
// the first of which are those of the objects that exist, and keeps no controller from starting while there is none.
func (s *Session) Source(kind client.Object, h handler.EventHandler, predicates ...predicate.Predicate) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		added := &subscription{kind: kind, handler: h, predicates: predicates, ctx: ctx, queue: queue}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sources = append(s.sources, added)
		if s.current == nil {
			return nil
		}
		return added.attach(s.current)
	})
}

// attach makes the subscription receive the events of a connection. It ends with the connection's informers.
func (s *subscription) attach(c *connection) error {
	informer, err := c.cache.GetInformer(c.lost, s.kind, cache.BlockUntilSynced(false))
	if err != nil {
		return microerror.Mask(err)
	}
	events := &source.Informer{Informer: informer, Handler: s.handler, Predicates: s.predicates}
	return microerror.Mask(events.Start(s.ctx, s.queue))
}
