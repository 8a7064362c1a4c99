package workload

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// boundedClient ends reads with the session. They wait until the cache has seen the operator's own writes, and the
// cache of a lost cluster never will.
type boundedClient struct {
	client.Client
	session *session
}

// Get reads an object from the cache.
func (b *boundedClient) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return b.Client.Get(ctx, name, into, options...)
}

// List reads objects from the cache.
func (b *boundedClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	ctx, cancel, err := b.session.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return b.Client.List(ctx, into, options...)
}

// bound returns a context that ends with the session, or after the time that a request may take. It fails if the
// session has ended.
func (s *session) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.lost.Err() != nil {
		return nil, nil, errLost
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(s.lost, cancel)
	return ctx, func() { stop(); cancel() }, nil
}
