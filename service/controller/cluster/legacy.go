package cluster

import (
	"context"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// tellOriginal reports in one condition that giantswarm/kvm-operator manages the cluster. Both operators use the same
// finalizers and the same names, so every other write would do harm: removing a finalizer would leave the cluster
// behind.
func (r *Reconciler) tellOriginal(ctx context.Context, config *v1alpha1.KVMConfig) error {
	legacy, machine, err := r.reader().Legacy(ctx, config)
	if err != nil || !legacy || machine == nil { // without a machine, it was reported while there were some
		return err
	}
	before := meta.FindStatusCondition(config.Status.Conditions, state.ConditionReady)
	said := before != nil && before.Reason == state.ReasonLegacyMachines
	message := state.LegacyMachines(machine).Error()
	if said && before.Status == metav1.ConditionFalse && before.Message == message && before.ObservedGeneration == config.Generation {
		return nil
	}
	ready := metav1.Condition{
		Type: state.ConditionReady, Status: metav1.ConditionFalse, Reason: state.ReasonLegacyMachines, Message: message,
		ObservedGeneration: config.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if before != nil && before.Status == ready.Status {
		ready.LastTransitionTime = before.LastTransitionTime
	}
	if err := r.engine.SetConditions(ctx, config, ready); err != nil {
		return microerror.Mask(client.IgnoreNotFound(err))
	}
	if r.Events != nil && !said {
		r.Events.Eventf(config, nil, corev1.EventTypeWarning, state.ReasonLegacyMachines, "Reconcile", "%s", message)
	}
	return nil
}
