package chain

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Reasons of conditions that every handler may have.
const (
	// ReasonBlocked means that the handler was not run because another one is not done.
	ReasonBlocked = "Blocked"
	// ReasonRetrying means that the handler failed for a reason that may pass by itself; it is retried with back-off.
	ReasonRetrying = "Retrying"
)

// Condition returns the condition for the result, without its time.
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
	c.Message = text.Beginning(c.Message, MostMessage)
	return c
}

// MostMessage is the maximum length of a condition's message in bytes. The API rejects a status with a message of more
// than 32,768 characters, and the name of another handler may come before it.
const MostMessage = 16 << 10

// problemRetry is how often a problem is checked again without an event. It costs no request unless something changed.
const problemRetry = time.Minute

// Next returns what the results request of the controller: an error is retried with back-off, otherwise the shortest
// wait of a handler counts; zero means to wait for the next event.
func Next(results []Result) (time.Duration, error) {
	var after time.Duration
	shorten := func(d time.Duration) {
		if d > 0 && (after == 0 || d < after) {
			after = d
		}
	}
	for _, r := range results {
		if _, ok := problem.As(r.Err); ok {
			shorten(problemRetry)
		} else if r.Err != nil {
			return 0, r.Err
		}
		shorten(r.Outcome.After)
	}
	return after, nil
}
