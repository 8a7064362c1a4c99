package apply

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// past says what a request has done, by its verb.
var past = map[string]string{
	"annotate": "annotated", "apply": "applied", "approve": "approved", "cordon": "cordoned", "create": "created", "delete": "deleted",
	"evict": "evicted", "label": "labelled", "mark": "marked", "move fields of": "moved fields of", "place": "placed", "prune": "pruned",
	"release": "released", "remove the finalizer of": "removed the finalizer of", "replace": "replaced", "set the condition of": "set the condition of", "set the conditions of": "set the conditions of",
}

// keyObject is the key of log lines that holds the object, as "Kind namespace/name".
const keyObject = "object"

// wrote logs a write that the API server has taken, one line each, and describes one that it has not.
func wrote(ctx context.Context, verb, ref string, err error, more ...any) error {
	if err != nil {
		return requestError(verb, ref, err)
	}
	log.FromContext(ctx).Info(past[verb], append([]any{keyObject, ref}, more...)...)
	return nil
}

// by names the handler that an object belongs to in a log line.
func by(owner key.Owner) []any { return []any{"handler", owner.Handler} }
