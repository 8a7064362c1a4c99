package chain

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/problem"
	"github.com/kvm-operator/kvm-operator/pkg/text"
)

// Reasons of conditions that every handler may have.
const (
	// ReasonBlocked says that the handler was not run because another one is not done.
	ReasonBlocked = "Blocked"
	// ReasonRetrying says that something failed that may pass by itself; it is tried again with back-off.
	ReasonRetrying = "Retrying"
)

// Condition is the condition that tells the result, without its time.
func (r Result) Condition(conditionType string) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse}
	problem, isProblem := problem.As(r.Err)
	switch {
	case len(r.BlockedBy) > 0:
		c.Status = metav1.ConditionUnknown
		c.Reason, c.Message = ReasonBlocked, "waits for "+strings.Join(r.BlockedBy, ", ")
	case isProblem:
		c.Reason, c.Message = problem.Reason, problem.Message
	case r.Err != nil:
		c.Reason, c.Message = ReasonRetrying, r.Err.Error()
	case r.Outcome.State == StateDone:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, r.Outcome.Reason, r.Outcome.Message
	case r.Outcome.State == StateUnknown:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, r.Outcome.Reason, r.Outcome.Message
	default:
		c.Reason, c.Message = r.Outcome.Reason, r.Outcome.Message
	}
	c.Message = text.Beginning(c.Message, mostMessage)
	return c
}

// mostMessage is how many bytes the message of a condition has at most. The API refuses a status with one of more than 32,768 characters,
// and another handler's name may come before it.
const mostMessage = 16 << 10

// problemRetry is how often a problem is looked at again without an event. It costs no request unless something changed.
const problemRetry = time.Minute

// Next says what the results ask of the controller: an error is retried with back-off, otherwise the shortest wish of a
// handler holds; zero leaves it to the next event.
func Next(results []Result) (time.Duration, error) {
	var after time.Duration
	sooner := func(d time.Duration) {
		if d > 0 && (after == 0 || d < after) {
			after = d
		}
	}
	for _, r := range results {
		if _, ok := problem.As(r.Err); ok {
			sooner(problemRetry)
		} else if r.Err != nil {
			return 0, r.Err
		}
		sooner(r.Outcome.After)
	}
	return after, nil
}
