package qmp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

func TestKeepConnectsAgainAndRepeatsNoCommand(t *testing.T) {
	var seen []string
	path := listen(t,
		func(p *peer) {
			p.greet()
			r, _ := p.next()
			seen = append(seen, r.Execute)
		},
		func(*peer) { seen = append(seen, "hangs up") },
		func(p *peer) {
			p.greet()
			r, _ := p.next()
			seen = append(seen, r.Execute)
			p.event("STOP", "{}")
			p.reply(r, `{"running": false, "status": "paused"}`)
			p.next()
		})
	sessions := 0
	finished := errors.New("finished")
	err := qmp.Keep(t.Context(), path, func(ctx context.Context, c *qmp.Client) error {
		sessions++
		stopped := c.Subscribe(qmp.EventStop)
		if sessions == 1 {
			err := c.Reset(ctx)
			<-ctx.Done()
			if !errors.Is(err, qmp.ErrClosed) || !errors.Is(context.Cause(ctx), qmp.ErrClosed) {
				t.Errorf("the first session ends with %v, its context with %v", err, context.Cause(ctx))
			}
			return err
		}
		if s, err := c.Status(ctx); err != nil || s.Status != "paused" {
			t.Errorf("the status is %v, %v", s, err)
		}
		<-stopped.Events()
		return finished
	})
	if !errors.Is(err, finished) || sessions != 2 {
		t.Errorf("Keep returns %v after %d sessions", err, sessions)
	}
	noGoroutineLeft(t)
	if diff := cmp.Diff([]string{"system_reset", "hangs up", "query-status"}, seen); diff != "" {
		t.Errorf("QEMU sees otherwise (-want +got):\n%s", diff)
	}
}

func TestKeepEndsWithItsContext(t *testing.T) {
	held := func(p *peer) { p.greet(); p.next() }
	for name, test := range map[string]struct {
		script             func(p *peer, cancel func())
		cancelAt, cancelIn bool // when the session begins, or when its connection has ended
	}{
		"while it dials":              {func(p *peer, cancel func()) { cancel(); p.next() }, false, false},
		"in a session":                {func(p *peer, _ func()) { held(p) }, true, false},
		"when the connection is lost": {func(p *peer, _ func()) { p.greet() }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			path := listen(t, func(p *peer) { test.script(p, cancel) })
			err := qmp.Keep(ctx, path, func(ctx context.Context, _ *qmp.Client) error {
				if test.cancelAt {
					cancel()
				}
				<-ctx.Done()
				if test.cancelIn {
					cancel()
				}
				return ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it returns %v", err)
			}
			noGoroutineLeft(t)
		})
	}
}

func TestKeepReturnsWhatTheSessionReturns(t *testing.T) {
	path := listen(t, func(p *peer) { p.greet(); p.next() })
	if err := qmp.Keep(t.Context(), path, func(context.Context, *qmp.Client) error { return nil }); err != nil {
		t.Errorf("a session that ends well is %v", err)
	}
	noGoroutineLeft(t)
}
