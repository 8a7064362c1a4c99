package chain

import (
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcomes logs changes of the outcomes of handlers, so that the log also has those that no condition shows, because a
// condition has the worst outcome of its area. It remembers a status and a reason for each handler of each object until
// the object is forgotten. It is safe for concurrent use; its zero value is ready to use.
type Outcomes struct {
	mu    sync.Mutex
	known map[string]map[string]outcome
}

// outcome is what has to change for an entry in the log. The message is not part of it, because its words may vary.
type outcome struct {
	status metav1.ConditionStatus
	reason string
}

// reasonNotConfigured is the reason in the log of a handler whose work the user did not request; it has no condition.
const reasonNotConfigured = "NotConfigured"

// Log logs each handler whose outcome for the object is another one than when it last ran. Of handlers that have not run
// before, as after a start of the operator, it logs those that are not done. Handlers that are blocked have not run.
func (o *Outcomes) Log(logger logr.Logger, object string, results []Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.of(object)
	for _, r := range results {
		if len(r.BlockedBy) > 0 {
			continue // the handler that blocks it is logged
		}
		c := r.Condition(r.Handler)
		now := outcome{c.Status, c.Reason}
		if r.is(StateNotConfigured) {
			now.reason = reasonNotConfigured
		}
		before, ran := known[r.Handler]
		known[r.Handler] = now
		if ran && before != now || !ran && !r.Done() {
			logger.Info("handler outcome changed", "handler", r.Handler, "reason", now.reason, "message", c.Message)
		}
	}
}

func (o *Outcomes) of(object string) map[string]outcome {
	if o.known == nil {
		o.known = map[string]map[string]outcome{}
	}
	if o.known[object] == nil {
		o.known[object] = map[string]outcome{}
	}
	return o.known[object]
}

// Forget removes what is remembered of an object that is no longer reconciled.
func (o *Outcomes) Forget(object string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, object)
}
