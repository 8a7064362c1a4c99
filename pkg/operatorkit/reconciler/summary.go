package reconciler

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Conditions that summarize others, in the sense of kstatus.
const (
	// ConditionReady is True when every step of every controller is done.
	ConditionReady = "Ready"
	// ConditionReconciling exists, and is True, while the operator works or waits for something that does not need a
	// person.
	ConditionReconciling = "Reconciling"
	// ConditionStalled exists, and is True, while only a person can fix the problem.
	ConditionStalled = "Stalled"
)

// Summarize summarizes the results and the conditions of other controllers. A problem that only a person can fix comes
// before a handler that waits, that before a blocked one, and that before other controllers: the first reason is the
// one to act on.
func Summarize(results []chain.Result, others []metav1.Condition, deleting bool) []metav1.Condition {
	ready := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "every step is done"}
	var summary []metav1.Condition
	if waiting := first(results, isWaiting); waiting != nil {
		summary = append(summary, isTrue(waiting.Condition(ConditionReconciling)))
	}
	if problem := first(results, chain.Result.IsProblem); problem != nil {
		summary = append(summary, isTrue(problem.Condition(ConditionStalled)))
	}
	for _, pick := range []func(chain.Result) bool{chain.Result.IsProblem, isWaiting, notDone} {
		if r := first(results, pick); r != nil {
			ready = r.Condition(ConditionReady)
			ready.Status = metav1.ConditionFalse
			ready.Message = fmt.Sprintf("%s: %s", r.Handler, ready.Message)
			break
		}
	}
	for _, c := range others {
		if ready.Status == metav1.ConditionTrue && c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, c.Reason, c.Message
			summary = append(summary, metav1.Condition{Type: sumOf(c), Status: metav1.ConditionTrue, Reason: c.Reason, Message: c.Message})
		}
	}
	if deleting {
		ready.Status = metav1.ConditionFalse
		if ready.Reason == "Ready" {
			ready.Reason, ready.Message = "Deleting", "it is being deleted"
		}
	}
	return append([]metav1.Condition{ready}, summary...)
}

// sumOf returns the condition that sums up a condition of another controller. An object that the API server refuses needs
// a person.
func sumOf(c metav1.Condition) string {
	if c.Reason == "Refused" {
		return ConditionStalled
	}
	return ConditionReconciling
}

func isTrue(c metav1.Condition) metav1.Condition {
	c.Status = metav1.ConditionTrue
	return c
}

func first(results []chain.Result, pick func(chain.Result) bool) *chain.Result {
	for i := range results {
		if pick(results[i]) {
			return &results[i]
		}
	}
	return nil
}

func isWaiting(r chain.Result) bool { return !r.Done() && len(r.BlockedBy) == 0 && !r.IsProblem() }

func notDone(r chain.Result) bool { return !r.Done() }

// Merge returns the wanted conditions, with the transition times of those whose status has not changed.
func Merge(before, wanted []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	var merged []metav1.Condition
	for _, c := range wanted {
		if known := meta.FindStatusCondition(before, c.Type); known != nil {
			merged = append(merged, *known)
		}
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&merged, c)
	}
	return merged
}
