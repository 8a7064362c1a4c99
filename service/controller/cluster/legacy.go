package cluster

import (
	"context"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// standAside says whether giantswarm/kvm-operator runs the cluster, and tells so in one condition. Both operators use the same finalizer and the
// same names, so that everything else would harm: a finalizer that is taken away leaves the cluster behind.
func (r *Reconciler) standAside(ctx context.Context, config *v1alpha1.KVMConfig) (bool, error) {
	before := meta.FindStatusCondition(config.Status.Conditions, ConditionReady)
	said := before != nil && before.Reason == snapshot.ReasonLegacyMachines
	legacy, machine, err := r.legacy(ctx, config, said)
	if err != nil || !legacy {
		return false, err
	}
	if machine == nil {
		return true, nil // it was said while there were machines
	}
	message := snapshot.LegacyMachines(machine).Error()
	if said && before.Status == metav1.ConditionFalse && before.Message == message && before.ObservedGeneration == config.Generation {
		return true, nil
	}
	ready := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionFalse, Reason: snapshot.ReasonLegacyMachines, Message: message,
		ObservedGeneration: config.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if before != nil && before.Status == ready.Status {
		ready.LastTransitionTime = before.LastTransitionTime
	}
	if err := r.engine.SetConditions(ctx, config, ready); err != nil {
		return true, microerror.Mask(client.IgnoreNotFound(err))
	}
	if r.Events != nil && !said {
		r.Events.Eventf(config, nil, corev1.EventTypeWarning, snapshot.ReasonLegacyMachines, "Reconcile", "%s", message)
	}
	return true, nil
}

// legacy says whether giantswarm/kvm-operator runs the cluster, and names one of its machines while there are any. That it was said before
// counts where this operator has nothing of the cluster: on deletion the machines go first, and the rest of the cluster is not gone then.
func (r *Reconciler) legacy(ctx context.Context, config *v1alpha1.KVMConfig, said bool) (bool, *appsv1.Deployment, error) {
	namespace, name := &corev1.Namespace{}, client.ObjectKey{Name: key.Namespace(config.Spec.Cluster.ID)}
	if err := r.Client.Get(ctx, name, namespace); client.IgnoreNotFound(err) != nil {
		return false, nil, microerror.Mask(err)
	}
	if key.HasOwner(namespace.Annotations) {
		return false, nil, nil
	}
	machine, err := r.legacyMachine(ctx, config)
	if err != nil || machine == nil && !said {
		return false, nil, err
	}
	// The cache does not have the namespaces of giantswarm/kvm-operator: they lack the label that it selects by.
	err = r.Live.Get(ctx, name, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return said && config.DeletionTimestamp != nil, nil, nil
	case err != nil:
		return false, nil, microerror.Mask(err)
	}
	return !key.HasOwner(namespace.Annotations), machine, nil
}

// legacyMachine is the first Deployment of a node of the cluster that giantswarm/kvm-operator made, if there is one.
func (r *Reconciler) legacyMachine(ctx context.Context, config *v1alpha1.KVMConfig) (*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	id := config.Spec.Cluster.ID
	if err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace(id)), client.DisableReadYourWritesConsistency); err != nil {
		return nil, microerror.Mask(err)
	}
	var first *appsv1.Deployment
	for i := range list.Items {
		if d := &list.Items[i]; snapshot.IsLegacyMachine(d) && (first == nil || d.Name < first.Name) {
			first = d
		}
	}
	return first, nil
}
