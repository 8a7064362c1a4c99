package machine

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// tell logs, counts and reports what has changed, once.
func (r *Reconciler) tell(ctx context.Context, before, after *v1alpha1.Machine, s *vitistack.State, results []chain.Result) {
	logger := log.FromContext(ctx).WithValues(jsonlog.KeyPhase, after.Status.Phase)
	if before.Status.Phase != after.Status.Phase {
		logger.Info("phase changed", "before", before.Status.Phase)
	}
	for _, c := range after.Status.Conditions {
		known := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		if known == nil || known.Status != c.Status || known.Reason != c.Reason {
			logger.Info("condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "cause", c.Message)
		}
	}
	entered := vitistack.Errors(before.Status, after.Status)
	for _, errorType := range entered {
		r.Metrics.Error(errorType)
	}
	for _, p := range vitistack.Problems(s, results) {
		if p.Network != "" && slices.Contains(entered, p.Type) {
			r.Metrics.NetworkError(p.Network)
		}
	}
	for _, e := range vitistack.Transitions(before.Status, after.Status) {
		report(r.Events, after, e)
	}
}

// report sends an event about a Machine.
func report(recorder events.EventRecorder, m *v1alpha1.Machine, e vitistack.Event) {
	if recorder != nil {
		recorder.Eventf(m, nil, e.Type, e.Reason, "Reconcile", "%s", e.Message)
	}
}
