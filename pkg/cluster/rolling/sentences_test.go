package rolling_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
)

// parse parses nodes in the form of describe.
func parse(t *testing.T, text string) []rolling.Node {
	t.Helper()
	var nodes []rolling.Node
	for _, part := range strings.Split(text, ", ") {
		words := strings.Fields(part)
		n := rolling.Node{ID: words[0], Master: strings.HasPrefix(words[0], "m"), Exists: words[1] != "missing"}
		if n.Exists {
			n.Outdated, n.Ready = words[1] == "old", words[2] == "ready"
		}
		nodes = append(nodes, n)
	}
	if diff := cmp.Diff(text, describe(nodes)); diff != "" {
		t.Fatalf("the test's state is malformed:\n%s", diff)
	}
	return nodes
}

// sentences of the comment at Decide.
var sentences = map[string]struct {
	nodes              string
	limits             rolling.Limits
	replace, waiting   string
	reason, waitingFor string
}{
	"what is up to date stays": {nodes: "m0 new ready, w0 new ready"},
	"masters go first, one at a time": {
		nodes:   "m0 old ready, m1 old ready, m2 old ready, w0 old ready",
		replace: "m0", waiting: "m1 m2 w0", reason: "MasterNotReady", waitingFor: "m0",
	},
	"the next master waits until the last one is Ready": {
		nodes:   "m0 new away, m1 old ready, m2 old ready, w0 old ready",
		waiting: "m1 m2 w0", reason: "MasterNotReady", waitingFor: "m0",
	},
	"the next master goes once the last one is Ready": {
		nodes:   "m0 new ready, m1 old ready, m2 old ready",
		replace: "m1", waiting: "m2", reason: "MasterNotReady", waitingFor: "m1",
	},
	"workers wait for the last master": {
		nodes:   "m0 new away, w0 old ready",
		waiting: "w0", reason: "MastersFirst", waitingFor: "m0",
	},
	"workers wait for the only master": {
		nodes:   "m0 old ready, w0 old ready",
		replace: "m0", waiting: "w0", reason: "MastersFirst", waitingFor: "m0",
	},
	"broken workers wait for masters too": {
		nodes:   "m0 old ready, w0 old away",
		replace: "m0", waiting: "w0", reason: "MastersFirst", waitingFor: "m0",
	},
	"workers go one at a time": {
		nodes:   "m0 new ready, w0 old ready, w1 old ready",
		replace: "w0", waiting: "w1", reason: "WorkersNotReady", waitingFor: "w0",
	},
	"workers go as many at a time as the user allows": {
		nodes: "m0 new ready, w0 old ready, w1 old ready, w2 old ready", limits: rolling.Limits{MaxUnavailable: 2},
		replace: "w0 w1", waiting: "w2", reason: "WorkersNotReady", waitingFor: "w0",
	},
	"a worker that is away for another reason counts": {
		nodes: "m0 new ready, w0 new away, w1 old ready, w2 old ready", limits: rolling.Limits{MaxUnavailable: 2},
		replace: "w1", waiting: "w2", reason: "WorkersNotReady", waitingFor: "w0",
	},
	"a broken worker goes before its healthy peers": {
		nodes:   "m0 new ready, w0 old ready, w1 old away",
		replace: "w1", waiting: "w0", reason: "WorkersNotReady", waitingFor: "w1",
	},
	"a waiting node names the one in progress, not another that waits": {
		nodes:   "m0 new ready, w0 old away, w1 new away",
		waiting: "w0", reason: "WorkersNotReady", waitingFor: "w1",
	},
	"a broken master does not wait for itself": {nodes: "m0 old away, w0 new ready", replace: "m0"},
	"a broken master goes before its healthy peers": {
		nodes:   "m0 old ready, m1 old away, m2 old ready",
		replace: "m1", waiting: "m0 m2", reason: "MasterNotReady", waitingFor: "m1",
	},
	"masters that have lost their majority permanently are replaced at once": {
		nodes: "m0 old away, m1 old away, m2 old ready", limits: rolling.Limits{Lost: true},
		replace: "m0 m1", waiting: "m2", reason: "MasterNotReady", waitingFor: "m0",
	},
	"a replaced master is not waited for when the majority is lost permanently": {
		nodes: "m0 new away, m1 old away, m2 new ready", limits: rolling.Limits{Lost: true}, replace: "m1",
	},
	"a master that goes away while another one is replaced is not replaced": {
		nodes:   "m0 new away, m1 old away, m2 old ready",
		waiting: "m1 m2", reason: "MasterNotReady", waitingFor: "m0",
	},
	"of masters that have just gone away one is replaced": {
		nodes:   "m0 old away, m1 old away, m2 old ready",
		replace: "m0", waiting: "m1 m2", reason: "MasterNotReady", waitingFor: "m0",
	},
	"a master that was added is waited for before a healthy one is replaced": {
		nodes:   "m0 old ready, m1 missing, m2 missing",
		waiting: "m0", reason: "MasterNotReady", waitingFor: "m1",
	},
	"a new cluster has nothing to replace": {nodes: "m0 missing, w0 missing"},
	"paused holds everything, broken masters too": {
		nodes: "m0 old away, m1 old ready, w0 old ready", limits: rolling.Limits{Paused: true},
		waiting: "m0 m1 w0", reason: "Paused",
	},
	"a limit below 1 counts as 1": {
		nodes: "w0 old ready, w1 old ready", limits: rolling.Limits{MaxUnavailable: -1},
		replace: "w0", waiting: "w1", reason: "WorkersNotReady", waitingFor: "w0",
	},
}

func TestSentences(t *testing.T) {
	for name, test := range sentences {
		t.Run(name, func(t *testing.T) {
			want := rolling.Decision{Replace: map[string]bool{}, Waiting: strings.Fields(test.waiting), Reason: test.reason, WaitingFor: test.waitingFor}
			for _, id := range strings.Fields(test.replace) {
				want.Replace[id] = true
			}
			got := rolling.Decide(parse(t, test.nodes), test.limits)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("another decision (-want +got):\n%s", diff)
			}
		})
	}
}
