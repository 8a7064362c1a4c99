package apply

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// past maps the verb of a request to what it has done.
var past = map[string]string{
	"add finalizers to": "added finalizers to", "annotate": "annotated", "apply": "applied", "approve": "approved", "cordon": "cordoned", "create": "created", "delete": "deleted",
	"evict": "evicted", "label": "labelled", "mark": "marked", "move fields of": "moved fields of", "place": "placed", "prune": "pruned",
	"release": "released", "remove the finalizer of": "removed the finalizer of", "replace": "replaced", "set the condition of": "set the condition of", "set the conditions of": "set the conditions of",
}

// keyObject is the log key of the object, as "Kind namespace/name".
const keyObject = "object"

// wrote logs a write that the API server accepted, one line each, and describes the error of one that failed.
func (e *Engine) wrote(ctx context.Context, verb, ref string, err error, more ...any) error {
	if err != nil {
		return e.inSteadyWords(requestError(verb, ref, err))
	}
	e.words.Drop(verb + " " + ref)
	done, known := past[verb]
	if !known { // the verb names a field
		done = "did: " + verb
	}
	log.FromContext(ctx).Info(done, append([]any{keyObject, ref}, more...)...)
	return nil
}

// by returns the log values that name the handler of an object.
func by(owner ownership.Owner) []any { return []any{"handler", owner.Handler} }
