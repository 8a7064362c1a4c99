package chain_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// asking is a handler that calls a server which needs some time to respond.
type asking struct {
	chain.Handler[*diary]
	needs time.Duration
}

// failing is a step that fails.
func failing() chain.Handler[*diary] { return step{"a", chain.Outcome{}, errTransient} }

func (a asking) EnsureCreated(ctx context.Context, d *diary) (chain.Outcome, error) {
	select {
	case <-time.After(a.needs):
		return a.Handler.EnsureCreated(ctx, d)
	case <-ctx.Done():
		return chain.Outcome{}, ctx.Err()
	}
}

func named(*diary) string { return "default/ab1cd" }

// TestWhoHangsRests: in an hour in which a cluster is reconciled all the time, a handler that hangs takes a few
// minutes, and one that responds runs each time.
func TestWhoHangsRests(t *testing.T) {
	for name, test := range map[string]struct {
		needs time.Duration
		fails bool
		// most is how much of the hour it may take.
		most time.Duration
		done bool
	}{
		"one that answers at once":                    {0, false, 0, true},
		"one that answers just in time":               {19 * time.Second, false, time.Hour, true},
		"one that continues after a webhook of 30 s":  {31 * time.Second, false, time.Hour, true},
		"one that does not answer, or after a minute": {time.Minute, false, 10 * time.Minute, false},
		"one whose webhook is gone":                   {10 * time.Second, true, 3 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := chain.NewTurns(named, clock.RealClock{})
				var asked chain.Handler[*diary] = step{"a", chain.Done(), nil}
				if test.fails {
					asked = failing()
				}
				h := turns.Limit(asking{asked, test.needs})
				begin, spent, done := time.Now(), time.Duration(0), false
				for time.Since(begin) < time.Hour {
					before := time.Now()
					outcome, err := h.EnsureCreated(t.Context(), &diary{})
					spent += time.Since(before)
					done = done || outcome.State == chain.StateDone
					if err != nil || outcome.State != chain.StateDone && (outcome.Reason != chain.ReasonRequestTimeout || outcome.After <= 0) {
						t.Fatalf("%+v, %v", outcome, err)
					}
					time.Sleep(time.Second)
				}
				if spent > test.most || done != test.done {
					t.Errorf("it took %s of an hour, at most %s are allowed; done: %t, want %t", spent, test.most, done, test.done)
				}
			})
		})
	}
}

// TestWhoseTurnItIs: a failure is not a hang, a pass that ends says nothing about the handler, and an object that was
// forgotten starts over.
func TestWhoseTurnItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := chain.NewTurns(named, clock.RealClock{})
		reason := func(ctx context.Context, h chain.Handler[*diary]) string {
			outcome, err := turns.Limit(h).EnsureCreated(ctx, &diary{})
			if err != nil {
				return err.Error()
			}
			return outcome.Reason
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hangs := asking{step{"a", chain.Done(), nil}, time.Hour}
		got := []string{
			reason(t.Context(), failing()), reason(short, hangs), reason(t.Context(), step{"a", chain.Done(), nil}),
			reason(t.Context(), hangs), reason(t.Context(), step{"a", chain.Done(), nil}), reason(t.Context(), step{"b", chain.Done(), nil}),
		}
		turns.Forget("default/ab1cd")
		got = append(got, reason(t.Context(), step{"a", chain.Done(), nil}))
		want := []string{errTransient.Error(), context.DeadlineExceeded.Error(), "Done", chain.ReasonRequestTimeout, chain.ReasonRequestTimeout, "Done", "Done"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
