package rolling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
)

// nodeStates are all the states that one node can be in.
var nodeStates = []rolling.Node{
	{},
	{Exists: true},
	{Exists: true, Ready: true},
	{Exists: true, Outdated: true},
	{Exists: true, Outdated: true, Ready: true},
}

// eachRole calls visit with every combination of states of up to three nodes of one role.
func eachRole(master bool, visit func([]rolling.Node)) {
	prefix := "w"
	if master {
		prefix = "m"
	}
	var extend func(nodes []rolling.Node)
	extend = func(nodes []rolling.Node) {
		visit(nodes)
		if len(nodes) == 3 {
			return
		}
		for _, state := range nodeStates {
			state.ID, state.Master = fmt.Sprint(prefix, len(nodes)), master
			extend(append(slices.Clone(nodes), state))
		}
	}
	extend(nil)
}

// allLimits returns all limits for up to two unavailable workers.
func allLimits() []rolling.Limits {
	var all []rolling.Limits
	for i := range 16 {
		all = append(all, rolling.Limits{MaxUnavailable: 1 + i&1, Paused: i&2 != 0, Blind: i&4 != 0, Lost: i&8 != 0})
	}
	return all
}

// TestEverySmallState decides on every cluster of up to three masters and three workers and checks the decision against
// the safety rules.
func TestEverySmallState(t *testing.T) {
	states, failures := 0, 0
	eachRole(true, func(masters []rolling.Node) {
		eachRole(false, func(workers []rolling.Node) {
			nodes := append(slices.Clone(masters), workers...)
			for _, limits := range allLimits() {
				states++
				broken := brokenRules(nodes, limits)
				if len(broken) > 0 && failures < 10 {
					failures++
					t.Errorf("%s, limits %+v: %+v\n  %s", describe(nodes), limits, rolling.Decide(nodes, limits), strings.Join(broken, "\n  "))
				}
			}
		})
	})
	t.Logf("%d states decided", states)
	if want := 156 * 156 * 16; states != want {
		t.Errorf("%d states were visited, there are %d", states, want)
	}
}

// view is a cluster, the decision on it and what follows from both.
type view struct {
	nodes    []rolling.Node
	limits   rolling.Limits
	decision rolling.Decision
}

// count counts the masters, or workers, that match.
func (v view) count(master bool, match func(rolling.Node) bool) int {
	n := 0
	for _, node := range v.nodes {
		if node.Master == master && match(node) {
			n++
		}
	}
	return n
}

func (v view) replaced(n rolling.Node) bool { return v.decision.Replace[n.ID] }
func (v view) underWay(n rolling.Node) bool {
	return v.replaced(n) || n.Exists && !n.Ready && !outdated(n)
}
func (v view) replacedReady(n rolling.Node) bool { return v.replaced(n) && n.Ready }
func (v view) awayAfter(n rolling.Node) bool     { return !n.Ready || v.replaced(n) }
func away(n rolling.Node) bool                   { return !n.Ready }
func outdated(n rolling.Node) bool               { return n.Exists && n.Outdated }

// rules are statements that must hold for every decision.
var rules = map[string]func(view) bool{
	"at most one Ready master is replaced at once": func(v view) bool { return v.count(true, v.replacedReady) <= 1 },
	"no Ready master is replaced while another is away or replaced": func(v view) bool {
		return v.count(true, v.replacedReady) == 0 || v.count(true, v.awayAfter) == 1
	},
	"several masters are replaced at once only when the majority is lost permanently": func(v view) bool {
		masters := v.count(true, func(rolling.Node) bool { return true })
		return v.count(true, v.replaced) <= 1 || v.limits.Lost && v.count(true, away) > (masters-1)/2
	},
	"no master is replaced beside one that is, unless the majority is lost permanently": func(v view) bool {
		masters := v.count(true, func(rolling.Node) bool { return true })
		return v.count(true, v.replaced) == 0 || v.count(true, v.underWay) <= 1 || v.limits.Lost && v.count(true, away) > (masters-1)/2
	},
	"no worker is replaced while a master is outdated or away": func(v view) bool {
		return v.count(false, v.replaced) == 0 || v.count(true, func(n rolling.Node) bool { return outdated(n) || away(n) }) == 0
	},
	"no Ready worker is replaced beyond the limit of workers away": func(v view) bool {
		return v.count(false, v.replacedReady) == 0 || v.count(false, v.awayAfter) <= v.limits.MaxUnavailable
	},
	"no more workers than the limit are under way at once": func(v view) bool {
		return v.count(false, v.replaced) == 0 || v.count(false, v.underWay) <= v.limits.MaxUnavailable
	},
	"a broken node waits for none that has not been made": func(v view) bool {
		broken := func(n rolling.Node) bool { return outdated(n) && !n.Ready && !v.replaced(n) }
		workersTurn := v.count(true, func(n rolling.Node) bool { return outdated(n) || away(n) }) == 0
		return v.limits.Paused ||
			(v.count(true, broken) == 0 || v.count(true, v.underWay) > 0) &&
				(v.limits.Blind || !workersTurn || v.count(false, broken) == 0 || v.count(false, v.underWay) >= v.limits.MaxUnavailable)
	},
	"a node that is not outdated is never replaced": func(v view) bool {
		for _, n := range v.nodes {
			if v.replaced(n) && !outdated(n) {
				return false
			}
		}
		return true
	},
	"every outdated node is either replaced or waits": func(v view) bool {
		waiting := map[string]int{}
		for _, id := range v.decision.Waiting {
			waiting[id]++
		}
		for _, n := range v.nodes {
			want := 0
			if outdated(n) && !v.replaced(n) {
				want = 1
			}
			if waiting[n.ID] != want {
				return false
			}
		}
		return true
	},
	"paused means nothing": func(v view) bool { return !v.limits.Paused || len(v.decision.Replace) == 0 },
	"a node that waits has a reason, and no other node": func(v view) bool {
		return (len(v.decision.Waiting) > 0) == (v.decision.Reason != "")
	},
	"the reason is one of the documented": func(v view) bool {
		return slices.Contains([]string{"", "Paused", "MasterNotReady", "MastersFirst", "WorkersNotReady", "ClusterUnreachable"}, v.decision.Reason)
	},
	"a decision to wait says for which node, unless paused or unknown": func(v view) bool {
		told := v.decision.WaitingFor != ""
		return (told && len(v.decision.Waiting) > 0 && !v.limits.Paused) || !told && (len(v.decision.Waiting) == 0 || v.limits.Paused || v.limits.Blind)
	},
	"while the cluster does not answer no worker is replaced": func(v view) bool {
		return !v.limits.Blind || v.count(false, v.replaced) == 0
	},
	"while the cluster does not answer a Ready master is replaced only when it is alone": func(v view) bool {
		return !v.limits.Blind || v.count(true, v.replacedReady) == 0 || v.count(true, func(rolling.Node) bool { return true }) == 1
	},
	"a broken master can be replaced while the cluster does not answer": func(v view) bool {
		broken := func(n rolling.Node) bool { return outdated(n) && !n.Ready }
		underWay := func(n rolling.Node) bool { return !n.Ready && !outdated(n) }
		return v.limits.Paused || !v.limits.Blind || v.count(true, broken) == 0 || v.count(true, v.replaced) > 0 || v.count(true, underWay) > 0
	},
	"the node waited for is under way, so waiting ends": func(v view) bool {
		for _, n := range v.nodes {
			if n.ID == v.decision.WaitingFor {
				return v.replaced(n) || !n.Ready && !outdated(n)
			}
		}
		return v.decision.WaitingFor == ""
	},
	"with everything Ready an outdated node leads to a replacement": func(v view) bool {
		work := v.count(true, outdated)+v.count(false, outdated) > 0
		allReady := v.count(true, away)+v.count(false, away) == 0
		return v.limits.Paused || v.limits.Blind || !work || !allReady || len(v.decision.Replace) > 0
	},
	"an outdated node is replaced or something else is under way": func(v view) bool {
		underWay := func(n rolling.Node) bool { return !n.Ready && !outdated(n) }
		return v.limits.Paused || v.limits.Blind || len(v.decision.Waiting) == 0 || len(v.decision.Replace) > 0 ||
			v.count(true, underWay)+v.count(false, underWay) > 0
	},
	"the same state leads to the same decision": func(v view) bool {
		return cmp.Equal(v.decision, rolling.Decide(v.nodes, v.limits))
	},
}

func brokenRules(nodes []rolling.Node, limits rolling.Limits) []string {
	v := view{nodes: nodes, limits: limits, decision: rolling.Decide(slices.Clone(nodes), limits)}
	var broken []string
	for sentence, holds := range rules {
		if !holds(v) {
			broken = append(broken, sentence)
		}
	}
	slices.Sort(broken)
	return broken
}

// TestEveryRolloutEnds follows the decisions from every state: a replaced node comes back Ready and up to date one step
// later; a broken and outdated node never recovers by itself.
func TestEveryRolloutEnds(t *testing.T) {
	longest := 0
	eachRole(true, func(masters []rolling.Node) {
		eachRole(false, func(workers []rolling.Node) {
			for _, limits := range []rolling.Limits{{MaxUnavailable: 1}, {MaxUnavailable: 2}, {MaxUnavailable: 1, Lost: true}, {MaxUnavailable: 2, Lost: true}} {
				nodes, steps := append(slices.Clone(masters), workers...), 0
				for !slices.Equal(nodes, finished(nodes)) && steps <= 20 {
					nodes = step(nodes, rolling.Decide(nodes, limits))
					steps++
				}
				if longest = max(longest, steps); steps > 20 {
					t.Fatalf("from %s it stops at %s", describe(append(slices.Clone(masters), workers...)), describe(nodes))
				}
			}
		})
	})
	t.Logf("the longest rollout takes %d steps", longest)
}

// step returns the next state of the cluster: missing nodes are created, the chosen ones are replaced, and those in
// progress become Ready.
func step(nodes []rolling.Node, d rolling.Decision) []rolling.Node {
	next := slices.Clone(nodes)
	for i := range next {
		n := &next[i]
		switch {
		case !n.Exists:
			n.Exists = true
		case d.Replace[n.ID]:
			n.Outdated, n.Ready = false, false
		case !n.Outdated:
			n.Ready = true
		}
	}
	return next
}

func finished(nodes []rolling.Node) []rolling.Node {
	end := slices.Clone(nodes)
	for i := range end {
		end[i].Exists, end[i].Outdated, end[i].Ready = true, false, true
	}
	return end
}

// describe returns a short form: "m0 old ready, w0 new away, w1 missing".
func describe(nodes []rolling.Node) string {
	var parts []string
	for _, n := range nodes {
		state := n.ID + " new"
		if n.Outdated {
			state = n.ID + " old"
		}
		switch {
		case !n.Exists:
			state = n.ID + " missing"
		case n.Ready:
			state += " ready"
		default:
			state += " away"
		}
		parts = append(parts, state)
	}
	return strings.Join(parts, ", ")
}
