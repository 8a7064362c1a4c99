package chain_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// entries are logged lines of handlers, as "handler reason: message".
type entries []string

func (e *entries) logger(t *testing.T) logr.Logger {
	return funcr.NewJSON(func(text string) {
		var line struct {
			Level                         int
			Msg, Handler, Reason, Message string
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Level != 0 || line.Msg != "handler outcome changed" {
			t.Errorf("line %s: error %v", text, err)
		}
		*e = append(*e, line.Handler+" "+line.Reason+": "+line.Message)
	}, funcr.Options{})
}

// runs is what handlers did in runs, one after the other, over one object.
type runs [][]chain.Result

// TestChangedOutcomesAreInTheLog: a handler that is not the worst of its area is logged too, and each outcome once.
func TestChangedOutcomesAreInTheLog(t *testing.T) {
	done := func(handler string) chain.Result { return chain.Result{Handler: handler, Outcome: chain.Done()} }
	waits := func(reason, message string) chain.Result {
		return chain.Result{Handler: "service", Outcome: chain.Wait(reason, message, time.Minute)}
	}
	worst := chain.Result{Handler: "release", Err: errMissing}
	blocked := chain.Result{Handler: "service", BlockedBy: []string{"release"}}
	stores := chain.Result{Handler: "release", Outcome: chain.Store("an index")}
	for name, test := range map[string]struct {
		runs runs
		want entries
	}{
		"handlers that are done at the start": {runs{{done("release"), done("service")}}, nil},
		"a handler that waits at the start":   {runs{{done("release"), waits("Starting", "pod a")}}, entries{"service Starting: pod a"}},
		"a handler that does not change":      {runs{{waits("Starting", "pod a")}, {waits("Starting", "pod a")}}, entries{"service Starting: pod a"}},
		"other words for the same":            {runs{{waits("Starting", "pod a")}, {waits("Starting", "pod b")}}, entries{"service Starting: pod a"}},
		"another reason":                      {runs{{waits("Starting", "pod a")}, {waits("Deleting", "pod a")}}, entries{"service Starting: pod a", "service Deleting: pod a"}},
		"a handler that becomes done":         {runs{{waits("Starting", "pod a")}, {done("service")}}, entries{"service Starting: pod a", "service Done: "}},
		"not the worst of its area": {
			runs{{worst, done("service")}, {worst, waits("Starting", "pod a")}},
			entries{"release Missing: " + worst.Condition("").Message, "service Starting: pod a"},
		},
		"a handler that fails": {
			runs{{done("service")}, {{Handler: "service", Err: errTransient}}},
			entries{"service Retrying: " + errTransient.Error()},
		},
		"a handler that is blocked": {
			runs{{done("release"), done("service")}, {worst, blocked}},
			entries{"release Missing: " + worst.Condition("").Message},
		},
		"handlers that are blocked until a decision is stored": {
			runs{{done("release"), done("service")}, {stores, blocked}, {done("release"), done("service")}},
			entries{"release Storing: an index", "release Done: "},
		},
		"a handler that first runs after that": {
			runs{{stores, blocked}, {done("release"), waits("Starting", "pod a")}},
			entries{"release Storing: an index", "release Done: ", "service Starting: pod a"},
		},
		"a handler that is no longer configured": {
			runs{{done("service")}, {{Handler: "service", Outcome: chain.NotConfigured()}}},
			entries{"service NotConfigured: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got entries
			var outcomes chain.Outcomes
			for _, results := range test.runs {
				outcomes.Log(got.logger(t), "default/abc12", results)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the log says something else (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOutcomesAreOfOneObject: what is known of an object is not known of another, and not of one that was forgotten.
func TestOutcomesAreOfOneObject(t *testing.T) {
	var outcomes chain.Outcomes
	waits := []chain.Result{{Handler: "service", Outcome: chain.Wait("Starting", "pod a", 0)}}
	counts := map[string]int{}
	log := func(what, object string) {
		var got entries
		outcomes.Log(got.logger(t), object, waits)
		counts[what] = len(got)
	}
	log("first", "default/a")
	log("other", "default/b")
	outcomes.Forget("default/a")
	log("forgotten", "default/a")
	log("kept", "default/b")
	if diff := cmp.Diff(map[string]int{"first": 1, "other": 1, "forgotten": 1, "kept": 0}, counts); diff != "" {
		t.Errorf("other numbers of lines (-want +got):\n%s", diff)
	}
}
