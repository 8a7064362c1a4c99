package chain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// diary is the state of the tests: handlers record in it that they ran.
type diary struct{ entries []string }

// step is a handler with a fixed result.
type step struct {
	name    string
	outcome chain.Outcome
	err     error
}

func (s step) Name() string { return s.name }

func (s step) EnsureCreated(_ context.Context, d *diary) (chain.Outcome, error) {
	d.entries = append(d.entries, "create "+s.name)
	return s.outcome, s.err
}

func (s step) EnsureDeleted(_ context.Context, d *diary) (chain.Outcome, error) {
	d.entries = append(d.entries, "delete "+s.name)
	return s.outcome, s.err
}

func link(name string, outcome chain.Outcome, err error, needs ...string) chain.Link[*diary] {
	return chain.Link[*diary]{Handler: step{name, outcome, err}, Needs: needs}
}

func following(l chain.Link[*diary], names ...string) chain.Link[*diary] {
	l.Follows = names
	return l
}

func done(name string, needs ...string) chain.Link[*diary] {
	return link(name, chain.Done(), nil, needs...)
}

var (
	errTransient = errors.New("the API server did not answer")
	waiting      = chain.Wait("Starting", "node a starts", time.Second)
)

// orders are chains and the handlers of them that run.
var orders = map[string]struct {
	chain    chain.Chain[*diary]
	deleting bool
	// ran are the handlers in the order in which they ran, and blocked those that did not run, with the reason.
	ran     []string
	blocked map[string][]string
}{
	"forward in order": {
		chain: chain.Chain[*diary]{done("a"), done("b"), done("c")},
		ran:   []string{"create a", "create b", "create c"},
	},
	"backward when deleting": {
		chain:    chain.Chain[*diary]{done("a"), done("b"), done("c")},
		deleting: true,
		ran:      []string{"delete c", "delete b", "delete a"},
	},
	"a handler that waits holds up those that need it, transitively, and no others": {
		chain:   chain.Chain[*diary]{link("a", waiting, nil), done("b", "a"), done("c", "b"), done("d")},
		ran:     []string{"create a", "create d"},
		blocked: map[string][]string{"b": {"a"}, "c": {"b"}},
	},
	"a handler whose pass is repeated holds up those that need it and those that follow it": {
		chain:   chain.Chain[*diary]{link("a", chain.Again("a key was created"), nil), done("b", "a"), following(done("c"), "a"), done("d")},
		ran:     []string{"create a", "create d"},
		blocked: map[string][]string{"b": {"a"}, "c": {"a"}},
	},
	"a handler that fails holds up those that need it and no others": {
		chain:   chain.Chain[*diary]{link("a", chain.Outcome{}, errTransient), done("b", "a"), done("c")},
		ran:     []string{"create a", "create c"},
		blocked: map[string][]string{"b": {"a"}},
	},
	"an error counts even when the outcome beside it is done": {
		chain:   chain.Chain[*diary]{link("a", chain.Done(), errTransient), done("b", "a")},
		ran:     []string{"create a"},
		blocked: map[string][]string{"b": {"a"}},
	},
	"a problem holds up those that need it and no others": {
		chain:   chain.Chain[*diary]{link("a", chain.Outcome{}, errForeign), done("b", "a"), done("c")},
		ran:     []string{"create a", "create c"},
		blocked: map[string][]string{"b": {"a"}},
	},
	"of several needs those that are not done are named": {
		chain:   chain.Chain[*diary]{link("a", waiting, nil), done("b"), link("c", chain.Outcome{}, errTransient), done("d", "a", "b", "c")},
		ran:     []string{"create a", "create b", "create c"},
		blocked: map[string][]string{"d": {"a", "c"}},
	},
	"on deletion the one that is needed waits for those that need it": {
		chain:    chain.Chain[*diary]{done("a"), done("b", "a"), link("c", waiting, nil, "a"), done("d")},
		deleting: true,
		ran:      []string{"delete d", "delete c", "delete b"},
		blocked:  map[string][]string{"a": {"c"}},
	},
	"on deletion an error at the end holds up what it stands on, transitively": {
		chain:    chain.Chain[*diary]{done("a"), done("b", "a"), link("c", chain.Outcome{}, errTransient, "b"), done("d")},
		deleting: true,
		ran:      []string{"delete d", "delete c"},
		blocked:  map[string][]string{"b": {"c"}, "a": {"b"}},
	},
	"a handler that follows another runs whatever the result of that one": {
		chain: chain.Chain[*diary]{link("a", chain.Outcome{}, errForeign), following(done("b"), "a"), link("c", waiting, nil), following(done("d"), "b", "c")},
		ran:   []string{"create a", "create b", "create c", "create d"},
	},
	"a handler that follows one that does not run does not run either": {
		chain:   chain.Chain[*diary]{link("a", waiting, nil), done("b", "a"), following(done("c"), "b"), following(done("d"), "c")},
		ran:     []string{"create a"},
		blocked: map[string][]string{"b": {"a"}, "c": {"b"}, "d": {"c"}},
	},
	"on deletion the one that is followed waits for those that follow it": {
		chain:    chain.Chain[*diary]{done("a"), following(link("b", waiting, nil), "a"), following(done("c"), "b")},
		deleting: true,
		ran:      []string{"delete c", "delete b"},
		blocked:  map[string][]string{"a": {"b"}},
	},
	"storing stops everything after it, needed or not": {
		chain:   chain.Chain[*diary]{done("a"), link("b", chain.Store("indexes were assigned"), nil), done("c"), done("d", "a")},
		ran:     []string{"create a", "create b"},
		blocked: map[string][]string{"c": {"b"}, "d": {"b"}},
	},
	"storing together with an error is an error and stops nothing": {
		chain: chain.Chain[*diary]{link("a", chain.Store("x"), errTransient), done("b")},
		ran:   []string{"create a", "create b"},
	},
}

func TestOrderAndNeeds(t *testing.T) {
	for name, test := range orders {
		t.Run(name, func(t *testing.T) {
			if err := test.chain.Validate(); err != nil {
				t.Fatalf("the chain of the test is invalid: %v", err)
			}
			var d diary
			results := test.chain.Run(t.Context(), &d, test.deleting)
			blocked := map[string][]string{}
			var order []string
			for i, r := range results {
				order = append(order, test.chain[i].Handler.Name()+"="+r.Handler)
				if len(r.BlockedBy) > 0 {
					blocked[r.Handler] = r.BlockedBy
				}
				if r.Handler != test.chain[i].Handler.Name() {
					t.Errorf("results are not in the order of the chain: %s", strings.Join(order, " "))
				}
			}
			got := [2]any{d.entries, blocked}
			if diff := cmp.Diff([2]any{test.ran, test.blocked}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("other handlers were run (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRepeats: results are not stored before the next pass if a handler changed what the state was made from, unless
// another handler has a decision to store.
func TestRepeats(t *testing.T) {
	again, store, done := link("a", chain.Again("a key was created"), nil), link("b", chain.Store("a host was found"), nil), done("c")
	for name, test := range map[string]struct {
		chain chain.Chain[*diary]
		want  bool
	}{
		"nothing changed":       {chain.Chain[*diary]{done}, false},
		"a key was created":     {chain.Chain[*diary]{again, done}, true},
		"and a decision":        {chain.Chain[*diary]{again, store}, false},
		"one failed besides":    {chain.Chain[*diary]{again, link("d", chain.Outcome{}, errTransient)}, true},
		"it failed all the way": {chain.Chain[*diary]{link("a", chain.Again(""), errTransient)}, false},
	} {
		if got := chain.Repeats(test.chain.Run(t.Context(), &diary{}, false)); got != test.want {
			t.Errorf("%s: repeated %t, want %t", name, got, test.want)
		}
	}
}

func TestRunDoesNotChangeTheChain(t *testing.T) {
	c := chain.Chain[*diary]{done("a"), link("b", waiting, nil), done("c", "a", "b")}
	for range 2 {
		results := c.Run(t.Context(), &diary{}, false)
		if diff := cmp.Diff([]string{"b"}, results[2].BlockedBy); diff != "" {
			t.Errorf("another run blocks otherwise (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, c[2].Needs); diff != "" {
		t.Errorf("the needs were changed (-want +got):\n%s", diff)
	}
}

func TestResultsAreDoneOnlyWithNothingLeft(t *testing.T) {
	for name, test := range map[string]struct {
		result chain.Result
		want   bool
	}{
		"done":    {chain.Result{Outcome: chain.Done()}, true},
		"waiting": {chain.Result{Outcome: waiting}, false},
		"storing": {chain.Result{Outcome: chain.Store("x")}, false},
		"failed":  {chain.Result{Outcome: chain.Done(), Err: errTransient}, false},
		"blocked": {chain.Result{BlockedBy: []string{"a"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.result.Done()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChainsThatContradictThemselvesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		chain chain.Chain[*diary]
		want  string
	}{
		"empty":                {nil, ""},
		"in order":             {chain.Chain[*diary]{done("a"), done("b", "a")}, ""},
		"a name twice":         {chain.Chain[*diary]{done("a"), done("a")}, "a is in the chain twice"},
		"a need that is later": {chain.Chain[*diary]{done("a", "b"), done("b")}, "a needs b, which does not come before it"},
		"an unknown need":      {chain.Chain[*diary]{done("a", "x")}, "a needs x, which does not come before it"},
		"a need of itself":     {chain.Chain[*diary]{done("a", "a")}, "a needs a, which does not come before it"},
		"several faults": {
			chain.Chain[*diary]{done("a", "x"), done("a")},
			"a needs x, which does not come before it; a is in the chain twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := test.chain.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("it is judged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}
