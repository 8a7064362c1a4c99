package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// tell emits an event when the cluster becomes Ready and when it gets stuck on something that a person has to mend.
func (r *Reconciler) tell(before, after *v1alpha1.KVMConfig) {
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
	if stalled.Status == metav1.ConditionTrue && (known == nil || known.Message != stalled.Message) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, stalled.Reason, "Reconcile", "%s", stalled.Message)
	}
}
