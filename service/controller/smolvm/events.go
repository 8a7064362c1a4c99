package smolvm

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// maxNote bounds the note of an event, in bytes; the API server takes 1 kB.
const maxNote = 1000

// quiet are the reasons of the condition Reconciled that are no news, or have their own events.
var quiet = []string{
	v1alpha1.ReasonReconciled, v1alpha1.ReasonRuntimePending, v1alpha1.ReasonStartPending, v1alpha1.ReasonAwaitingNodeAssignment,
	v1alpha1.ReasonStopping, v1alpha1.ReasonResizing, v1alpha1.ReasonDeleting,
}

// tell logs what has changed, and reports what keeps the machine from becoming as its spec wants it, once.
func tell(ctx context.Context, recorder events.EventRecorder, before, after *v1alpha1.SmolVM) {
	logger := log.FromContext(ctx)
	if before.Status.Phase != after.Status.Phase {
		logger.Info("phase changed", "from", before.Status.Phase, "to", after.Status.Phase)
	}
	for _, c := range after.Status.Conditions {
		known := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		if known != nil && known.Status == c.Status && known.Reason == c.Reason {
			continue
		}
		logger.Info("condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		if c.Type == v1alpha1.ConditionReconciled && !slices.Contains(quiet, c.Reason) && recorder != nil {
			recorder.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", text.Beginning(c.Message, maxNote))
		}
	}
}
