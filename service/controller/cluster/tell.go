package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// tell logs what changed in the status. It emits an event when the cluster becomes Ready and when there is a problem
// that only a person can fix.
func (r *Reconciler) tell(ctx context.Context, before, after *v1alpha1.KVMConfig) {
	logConditions(ctx, before.Status.Conditions, after.Status.Conditions)
	logNodes(ctx, before.Status.Nodes, after.Status.Nodes)
	if r.Events == nil {
		return
	}
	r.tellSteps(before, after)
	ready := meta.FindStatusCondition(after.Status.Conditions, ConditionReady)
	if ready.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(before.Status.Conditions, ConditionReady) {
		r.Events.Eventf(after, nil, corev1.EventTypeNormal, "Ready", "Reconcile", "every node is Ready")
	}
	stalled := meta.FindStatusCondition(after.Status.Conditions, ConditionStalled)
	known := meta.FindStatusCondition(before.Status.Conditions, ConditionStalled)
	if stalled != nil && (known == nil || known.Message != stalled.Message) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, stalled.Reason, "Reconcile", "%s", stalled.Message)
	}
}

// logConditions logs each condition whose status or reason changed and, with a higher verbosity, each whose message
// changed.
func logConditions(ctx context.Context, before, after []metav1.Condition) {
	logger := log.FromContext(ctx)
	for _, c := range after {
		known := meta.FindStatusCondition(before, c.Type)
		fields := []any{"type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message}
		switch {
		case known == nil || known.Status != c.Status || known.Reason != c.Reason:
			logger.Info("condition changed", fields...)
		case known.Message != c.Message:
			logger.V(1).Info("condition message changed", fields...)
		}
	}
}

// logNodes logs each node whose phase or step changed, and each that is gone.
func logNodes(ctx context.Context, before, after []v1alpha1.NodeStatus) {
	logger := log.FromContext(ctx)
	for _, n := range after {
		known := state.StatusOf(before, n.Role, n.ID)
		if known == nil || known.Phase != n.Phase || known.Step != n.Step {
			logger.Info("node changed", "role", n.Role, "node", n.ID, "phase", n.Phase, "step", n.Step, "pod", n.Pod, "host", n.Host, "message", n.Message)
		}
	}
	for _, n := range before {
		if state.StatusOf(after, n.Role, n.ID) == nil {
			logger.Info("node is gone", "role", n.Role, "node", n.ID)
		}
	}
}
