package reconciler_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

var (
	done    = chain.Result{Handler: "done", Outcome: chain.Done()}
	telling = chain.Result{Handler: "telling", Outcome: chain.Outcome{State: chain.StateDone, Reason: "Told", Message: "one thing"}}
	waiting = chain.Result{Handler: "waiting", Outcome: chain.Wait("Starting", "node a starts", 0)}
	unknown = chain.Result{Handler: "unknown", Outcome: chain.Unknown("NotAsked", "etcd was not asked")}
	blocked = chain.Result{Handler: "blocked", BlockedBy: []string{"waiting"}}
	failing = chain.Result{Handler: "failing", Err: errors.New("the API server did not answer")}
	stuck   = chain.Result{Handler: "stuck", Err: problem.Newf("Missing", "Release v1 does not exist")}
	unasked = chain.Result{Handler: "unasked", Outcome: chain.NotConfigured()}
)

// TestTheWorstResultWins: the message also names every handler that is not done, the worst first.
func TestTheWorstResultWins(t *testing.T) {
	for name, test := range map[string]struct {
		results []chain.Result
		want    string
	}{
		"nothing is configured": {[]chain.Result{unasked}, "none"},
		"no handler":            {nil, "none"},
		"all is done":           {[]chain.Result{done, done, unasked}, "True Done: "},
		"one tells something":   {[]chain.Result{done, telling}, "True Told: telling: one thing"},
		"one is unknown":        {[]chain.Result{done, unknown, telling}, "Unknown NotAsked: unknown: etcd was not asked; telling: one thing"},
		"one is blocked":        {[]chain.Result{unknown, blocked}, "Unknown Blocked: blocked: waits for waiting; unknown: etcd was not asked"},
		"one waits":             {[]chain.Result{blocked, waiting}, "False Starting: waiting: node a starts; blocked: waits for waiting"},
		"one fails":             {[]chain.Result{waiting, failing}, "False Retrying: failing: the API server did not answer; waiting: node a starts"},
		"one is stuck": {
			[]chain.Result{failing, waiting, blocked, stuck, done},
			"False Missing: stuck: Release v1 does not exist; failing: the API server did not answer; waiting: node a starts; blocked: waits for waiting",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := "none"
			if c, ok := reconciler.Condition("NodesReady", test.results); ok {
				got = string(c.Status) + " " + c.Reason + ": " + c.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("another condition (-want +got):\n%s", diff)
			}
		})
	}
}

// written has the conditions that were written last.
type written struct {
	times int
	last  []metav1.Condition
}

func (w *written) SetConditionsAs(_ context.Context, _ string, _ client.Object, conditions ...metav1.Condition) error {
	w.times, w.last = w.times+1, conditions
	return nil
}

func (w *written) DropCondition(_ context.Context, _ string, _ client.Object, conditions []metav1.Condition, name string) error {
	w.times, w.last = w.times+1, slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == name })
	return nil
}

// TestOwnConditionIsWrittenOnce: the condition exists while there is something to report, keeps the time of its last
// transition, and costs a write only if it changes.
func TestOwnConditionIsWrittenOnce(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	w := &written{}
	own := reconciler.OwnCondition{Type: "NodesPruned", Owner: "kvm-operator-deleter", Writer: w, Clock: clock}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	var there []metav1.Condition
	for _, step := range []struct {
		results []chain.Result
		writes  int
		reason  string
		since   time.Duration
	}{
		{[]chain.Result{done}, 0, "", 0},
		{[]chain.Result{waiting}, 1, "Starting", time.Minute},
		{[]chain.Result{waiting}, 1, "Starting", time.Minute},
		{[]chain.Result{stuck}, 2, "Missing", time.Minute},
		{[]chain.Result{telling}, 3, "Told", 4 * time.Minute},
		{[]chain.Result{done}, 4, "", 0},
		{[]chain.Result{unasked}, 4, "", 0},
	} {
		if err := own.Store(t.Context(), object, there, step.results); err != nil {
			t.Fatal(err)
		}
		there = w.last
		if w.times != step.writes {
			t.Errorf("after %+v there were %d writes, want %d", step.results, w.times, step.writes)
		}
		reason, since := "", time.Duration(0)
		if len(there) > 0 {
			reason, since = there[0].Reason, there[0].LastTransitionTime.Sub(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
		}
		if reason != step.reason || since != step.since {
			t.Errorf("after %+v the condition is %q since %s, want %q since %s", step.results, reason, since, step.reason, step.since)
		}
		clock.SetTime(clock.Now().Add(time.Minute))
	}
}
