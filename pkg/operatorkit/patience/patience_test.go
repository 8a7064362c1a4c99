package patience_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/patience"
)

var errServer = errors.New("the server says no")

// cached imitates a client whose cache sees the operator's own writes after the given time; zero means never.
type cached struct {
	client.Client
	behind time.Duration
	err    error
}

func (c cached) wait(ctx context.Context, plain bool) error {
	if plain {
		return c.err
	}
	var seen <-chan time.Time
	if c.behind > 0 {
		seen = time.After(c.behind)
	}
	select {
	case <-seen:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c cached) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, options ...client.GetOption) error {
	return c.wait(ctx, (&client.GetOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
}

func (c cached) List(ctx context.Context, _ client.ObjectList, options ...client.ListOption) error {
	return c.wait(ctx, (&client.ListOptions{}).ApplyOptions(options).DisableReadYourWritesConsistency)
}

// TestReadsEnd: a read takes as long as the cache needs, but at most the limit.
func TestReadsEnd(t *testing.T) {
	const limit = 2 * time.Second
	for name, test := range map[string]struct {
		inner   cached
		caller  time.Duration
		err     error
		elapsed time.Duration
	}{
		"a cache that follows":                      {inner: cached{behind: time.Millisecond}, caller: time.Minute, elapsed: time.Millisecond},
		"a cache that will never see the write":     {caller: time.Minute, elapsed: limit},
		"an error of the read itself":               {inner: cached{behind: time.Millisecond, err: errServer}, caller: time.Minute, err: errServer, elapsed: time.Millisecond},
		"an error after the limit":                  {inner: cached{err: errServer}, caller: time.Minute, err: errServer, elapsed: limit},
		"a caller with less time than the limit":    {caller: time.Second, err: context.DeadlineExceeded, elapsed: time.Second},
		"a cache that is slower than the limit":     {inner: cached{behind: time.Minute}, caller: time.Hour, elapsed: limit},
		"a cache that is just fast enough to serve": {inner: cached{behind: limit - time.Millisecond}, caller: time.Hour, elapsed: limit - time.Millisecond},
	} {
		reads := map[string]func(context.Context, client.Client) error{
			"get":  func(ctx context.Context, c client.Client) error { return c.Get(ctx, client.ObjectKey{}, &corev1.Pod{}) },
			"list": func(ctx context.Context, c client.Client) error { return c.List(ctx, &corev1.PodList{}) },
		}
		for verb, read := range reads {
			t.Run(verb+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), test.caller)
					defer cancel()
					start := time.Now()
					err := read(ctx, patience.New(test.inner, limit))
					if !errors.Is(err, test.err) {
						t.Errorf("error %v, want %v", err, test.err)
					}
					if diff := cmp.Diff(test.elapsed, time.Since(start)); diff != "" {
						t.Errorf("it takes another time (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}
