// Package patience bounds how long reads wait for the operator's own writes.
//
// A client of controller-runtime that reads its own writes waits until its cache has seen an event at least as new as
// the last write. If the object disappears while the watch is interrupted, for example because an API server is
// restarted during a deletion, the list that follows contains no such event, and every read of that kind waits until
// something else of the kind changes, possibly forever (sigs.k8s.io/controller-runtime v0.25,
// pkg/client/internal/consistencyhandler).
package patience

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Limit is how long a read waits. A cache with a working watch needs milliseconds.
const Limit = 2 * time.Second

var exhausted = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "kvm_operator_reads_without_own_writes_total",
	Help: "Reads that used a cache which did not have the operator's own writes in time.",
})

func init() { metrics.Registry.MustRegister(exhausted) }

// Client reads its own writes as long as the cache can show them in time, and otherwise what the cache has. Decisions
// have to tolerate an outdated cache anyway, so this costs at most a wasted request.
type Client struct {
	client.Client
	limit time.Duration
}

// New bounds the reads of a client that reads its own writes.
func New(c client.Client, limit time.Duration) *Client { return &Client{Client: c, limit: limit} }

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	bounded, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	err := c.Client.Get(bounded, name, into, options...)
	if err == nil || !gaveUp(ctx, bounded) {
		return err
	}
	return c.Client.Get(ctx, name, into, append(slices.Clone(options), client.DisableReadYourWritesConsistency)...)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	bounded, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	err := c.Client.List(bounded, into, options...)
	if err == nil || !gaveUp(ctx, bounded) {
		return err
	}
	return c.Client.List(ctx, into, append(slices.Clone(options), client.DisableReadYourWritesConsistency)...)
}

// gaveUp reports whether the limit ended the read and not the caller.
func gaveUp(caller, bounded context.Context) bool {
	if bounded.Err() == nil || caller.Err() != nil {
		return false
	}
	exhausted.Inc()
	return true
}
