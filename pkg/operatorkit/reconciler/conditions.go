package reconciler

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Condition folds the results of handlers into one condition; ok is false if none of them has anything to report. The
// worst result decides status and reason: a problem that only a person can fix, then an error that is retried, then a
// wait, then a blocked or unknown result. The message names each handler that is not done or has something to report,
// the worst first.
func Condition(conditionType string, results []chain.Result) (condition metav1.Condition, ok bool) {
	results = slices.DeleteFunc(slices.Clone(results), func(r chain.Result) bool { return !r.Configured() })
	if len(results) == 0 {
		return metav1.Condition{}, false
	}
	slices.SortStableFunc(results, func(a, b chain.Result) int { return severity(b) - severity(a) })
	condition = results[0].Condition(conditionType)
	var messages []string
	for _, r := range results {
		if severity(r) > severityDone {
			messages = append(messages, r.Handler+": "+r.Condition(conditionType).Message)
		}
	}
	condition.Message = text.Beginning(strings.Join(messages, "; "), chain.MostMessage)
	return condition, true
}

// Severities of a result, the worst last.
const (
	severityDone = iota
	severityTold
	severityUnknown
	severityBlocked
	severityWaiting
	severityRetrying
	severityProblem
)

func severity(r chain.Result) int {
	switch {
	case r.IsProblem():
		return severityProblem
	case r.Err != nil:
		return severityRetrying
	case len(r.BlockedBy) > 0:
		return severityBlocked
	case r.Outcome.State == chain.StateUnknown:
		return severityUnknown
	case !r.Done():
		return severityWaiting
	case r.Outcome.Message != "":
		return severityTold
	}
	return severityDone
}
