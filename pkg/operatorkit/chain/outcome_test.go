package chain_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

var (
	errForeign = problem.Newf("Foreign", "Namespace %s is foreign", "x")
	errMissing = problem.Newf("Missing", "Release v1 does not exist")
)

func TestEveryResultHasItsCondition(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: "NodesReady", Status: status, Reason: reason, Message: message}
	}
	for name, test := range map[string]struct {
		result chain.Result
		want   metav1.Condition
	}{
		"done":    {chain.Result{Outcome: chain.Done()}, condition("True", "Done", "")},
		"waiting": {chain.Result{Outcome: waiting}, condition("False", "Starting", "node a starts")},
		"unknown": {chain.Result{Outcome: chain.Unknown("NotAsked", "etcd was not asked")}, condition("Unknown", "NotAsked", "etcd was not asked")},
		"storing": {chain.Result{Outcome: chain.Store("indexes were assigned")}, condition("False", "Storing", "indexes were assigned")},
		"problem": {chain.Result{Err: errForeign}, condition("False", "Foreign", "Namespace x is foreign")},
		"failed":  {chain.Result{Err: errTransient}, condition("False", "Retrying", "the API server did not answer")},
		"problem and failure together": {
			chain.Result{Err: errors.Join(errForeign, errTransient)},
			condition("False", "Retrying", "Namespace x is foreign\nthe API server did not answer"),
		},
		"an error beside an outcome": {chain.Result{Outcome: chain.Done(), Err: errTransient}, condition("False", "Retrying", "the API server did not answer")},
		"blocked":                    {chain.Result{BlockedBy: []string{"a", "b"}}, condition("Unknown", "Blocked", "waits for a, b")},
		"more than the API takes": {
			chain.Result{Outcome: chain.Wait("Starting", strings.Repeat("ö", 32<<10), 0)}, condition("False", "Starting", strings.Repeat("ö", 8<<10-2)+"…"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.result.Condition("NodesReady")); diff != "" {
				t.Errorf("another condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhenToLookAgain(t *testing.T) {
	wait := func(after time.Duration) chain.Result { return chain.Result{Outcome: chain.Wait("W", "w", after)} }
	for name, test := range map[string]struct {
		results []chain.Result
		after   time.Duration
		err     error
	}{
		"nothing to do waits for the next event":    {[]chain.Result{{Outcome: chain.Done()}}, 0, nil},
		"a wait without time waits for the event":   {[]chain.Result{wait(0)}, 0, nil},
		"the shortest wait wins":                    {[]chain.Result{wait(time.Minute), wait(time.Second), wait(time.Hour)}, time.Second, nil},
		"a wait without time is ignored":            {[]chain.Result{wait(0), wait(time.Hour)}, time.Hour, nil},
		"a problem is checked again in a minute":    {[]chain.Result{{Err: errForeign}}, time.Minute, nil},
		"a shorter wait goes before a problem":      {[]chain.Result{{Err: errForeign}, wait(time.Second)}, time.Second, nil},
		"an error is retried despite other waits":   {[]chain.Result{wait(time.Second), {Err: errTransient}, {Err: errForeign}}, 0, errTransient},
		"a blocked handler asks for no time":        {[]chain.Result{{BlockedBy: []string{"a"}}}, 0, nil},
		"storing comes back by the event it causes": {[]chain.Result{{Outcome: chain.Store("x")}}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := chain.Next(test.results)
			if diff := cmp.Diff(test.after, after); diff != "" || !errors.Is(err, test.err) {
				t.Errorf("err = %v, want %v; after (-want +got):\n%s", err, test.err, diff)
			}
		})
	}
}
