package remediation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/remediation"
)

var (
	now    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	limits = remediation.Limits{After: 10 * time.Minute, Connected: true, Watched: time.Hour}
)

// states are all the states that one node can be in.
func states(name string, master bool) []remediation.Node {
	old := now.Add(-24 * time.Hour)
	base := remediation.Node{Name: name, Master: master, Joined: true, Created: old}
	ready, unready, due, young, leaving, stranger := base, base, base, base, base, base
	ready.Ready = true
	unready.Since = now.Add(-time.Minute)
	due.Since = now.Add(-time.Hour)
	young.Ready, young.Created = true, now.Add(-time.Minute)
	leaving.Since, leaving.Leaving = now.Add(-time.Hour), true
	stranger.Joined, stranger.Since = false, now.Add(-time.Hour)
	return []remediation.Node{ready, unready, due, young, leaving, stranger}
}

// each visits every cluster of up to three masters and three workers.
func each(visit func([]remediation.Node)) {
	var extend func(nodes []remediation.Node, masters, workers int)
	extend = func(nodes []remediation.Node, masters, workers int) {
		if masters > 0 {
			for _, s := range states(fmt.Sprint("master m", masters), true) {
				extend(append(slices.Clone(nodes), s), masters-1, workers)
			}
			return
		}
		visit(nodes)
		if workers < 3 {
			for _, s := range states(fmt.Sprint("worker w", workers), false) {
				extend(append(slices.Clone(nodes), s), 0, workers+1)
			}
		}
	}
	extend(nil, 1, 0)
	extend(nil, 3, 0)
}

var rules = map[string]func([]remediation.Node, remediation.Limits, remediation.Decision) bool{
	"nothing is replaced while the cluster does not answer": func(_ []remediation.Node, l remediation.Limits, d remediation.Decision) bool {
		return l.Connected || len(d.Replace) == 0
	},
	"nothing is replaced when the cluster has answered for a moment only": func(_ []remediation.Node, l remediation.Limits, d remediation.Decision) bool {
		return l.Watched >= 30*time.Second || len(d.Replace) == 0
	},
	"only what has been unready for long is replaced": func(nodes []remediation.Node, l remediation.Limits, d remediation.Decision) bool {
		return !slices.ContainsFunc(d.Replace, func(i int) bool {
			return nodes[i].Ready || !nodes[i].Joined || now.Sub(nodes[i].Since) < l.After
		})
	},
	"at most one master, and only when it is the only one away": func(nodes []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		replaced, away := 0, 0
		for i, n := range nodes {
			if n.Master && !n.Ready {
				away++
			}
			if n.Master && slices.Contains(d.Replace, i) {
				replaced++
			}
		}
		return replaced == 0 || replaced == 1 && away == 1
	},
	"not more than a tenth, or one": func(nodes []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		return len(d.Replace) <= max(1, (len(nodes)+5)/10)
	},
	"nothing while most nodes look dead": func(nodes []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		dead := 0
		for _, n := range nodes {
			if n.Joined && !n.Ready {
				dead++
			}
		}
		return dead*2 <= len(nodes) || len(d.Replace) == 0
	},
	"nothing while another node is on its way out or new": func(nodes []remediation.Node, l remediation.Limits, d remediation.Decision) bool {
		moving := slices.ContainsFunc(nodes, func(n remediation.Node) bool { return n.Leaving || now.Sub(n.Created) < l.After })
		return !moving || len(d.Replace) == 0
	},
	"healthy clusters are not spoken of": func(nodes []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		ill := slices.ContainsFunc(nodes, func(n remediation.Node) bool { return n.Joined && !n.Ready })
		return (d.Reason != "") == ill && (d.Message != "") == ill
	},
	"something is replaced when nothing stands against it": func(nodes []remediation.Node, l remediation.Limits, d remediation.Decision) bool {
		due, dead, still := 0, 0, true
		for _, n := range nodes {
			still = still && !n.Leaving && now.Sub(n.Created) >= l.After
			if n.Joined && !n.Ready {
				dead++
				if !n.Master && now.Sub(n.Since) >= l.After {
					due++
				}
			}
		}
		return !l.Connected || l.Watched < 30*time.Second || !still || dead*2 > len(nodes) || due == 0 || len(d.Replace) > 0
	},
	"who pauses names the node in the way": func(nodes []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		return d.Reason != "Pausing" || slices.ContainsFunc(nodes, func(n remediation.Node) bool { return strings.HasPrefix(d.Message, n.Name+" ") })
	},
	"who waits for time to pass says how long": func(_ []remediation.Node, _ remediation.Limits, d remediation.Decision) bool {
		return d.Reason != "Watching" && d.Reason != "Pausing" || d.After > 0
	},
}

func TestEverySmallState(t *testing.T) {
	count, failures := 0, 0
	each(func(nodes []remediation.Node) {
		for _, watched := range []time.Duration{0, 29 * time.Second, 30 * time.Second} {
			l := limits
			l.Connected, l.Watched = watched > 0, watched
			count++
			d := remediation.Decide(slices.Clone(nodes), l, now)
			for sentence, holds := range rules {
				if !holds(nodes, l, d) && failures < 10 {
					failures++
					t.Errorf("not so: %s\n%+v\n%+v", sentence, nodes, d)
				}
			}
		}
	})
	t.Logf("%d states decided", count)
	if count != smallStates {
		t.Errorf("there are %d states", smallStates)
	}
}

// smallStates is how many there are.
const smallStates = 172_494

// TestManyIllNodes covers clusters in which a tenth is more than one node: for any share of unhealthy nodes, exactly as
// many are replaced at a time as may be.
func TestManyIllNodes(t *testing.T) {
	for workers := 1; workers <= 60; workers++ {
		for ill := 0; ill <= workers; ill++ {
			var nodes []remediation.Node
			for i := range 3 + workers {
				all := states(fmt.Sprint("node ", i), i < 3)
				well, due := all[0], all[2]
				if i >= 3 && i < 3+ill {
					well = due
				}
				nodes = append(nodes, well)
			}
			want := min(ill, max(1, (len(nodes)+5)/10))
			if 2*ill > len(nodes) {
				want = 0
			}
			if d := remediation.Decide(nodes, limits, now); len(d.Replace) != want {
				t.Errorf("of %d nodes %d are unhealthy: %d are replaced, want %d (%s)", len(nodes), ill, len(d.Replace), want, d.Message)
			}
		}
	}
}

// TestLimitsOfRemediation covers how many nodes are replaced: one node in a small cluster, a tenth of a large one, the
// longest unready first.
func TestLimitsOfRemediation(t *testing.T) {
	for name, test := range map[string]struct {
		workers, dead int
		want          string
	}{
		"none of three":        {workers: 3},
		"one of three":         {workers: 3, dead: 1, want: "w0"},
		"two of five":          {workers: 5, dead: 2, want: "w0"},
		"nine of twenty-eight": {workers: 28, dead: 9, want: "w0 w1 w2"},
		"most of them":         {workers: 28, dead: 15},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []remediation.Node{{Name: "m0", Master: true, Joined: true, Ready: true}}
			for i := range test.workers {
				nodes = append(nodes, remediation.Node{
					Name: fmt.Sprint("w", i), Joined: true, Ready: i >= test.dead, Since: now.Add(-time.Hour).Add(time.Duration(i) * time.Second),
				})
			}
			var got []string
			for _, i := range remediation.Decide(nodes, limits, now).Replace {
				got = append(got, nodes[i].Name)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("replaced (-want +got):\n%s", diff)
			}
		})
	}
}
