package observe

import (
	"context"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Legacy returns whether giantswarm/kvm-operator manages the cluster, and one of its machines while there are any. If
// this operator owns no object of the cluster, a condition that was written before counts: on deletion the machines go
// first, and the rest of the cluster still exists.
func (r Reader) Legacy(ctx context.Context, config *v1alpha1.KVMConfig) (bool, *appsv1.Deployment, error) {
	ready := meta.FindStatusCondition(config.Status.Conditions, state.ConditionReady)
	said := ready != nil && ready.Reason == state.ReasonLegacyMachines
	namespace, name := &corev1.Namespace{}, client.ObjectKey{Name: key.Namespace(config.Spec.Cluster.ID)}
	if err := r.Cached.Get(ctx, name, namespace); client.IgnoreNotFound(err) != nil {
		return false, nil, microerror.Mask(err)
	}
	if ownership.Has(namespace.Annotations) {
		return false, nil, nil
	}
	machine, err := r.legacyMachine(ctx, config)
	if err != nil || machine == nil && !said {
		return false, nil, err
	}
	// The cache does not have the namespaces of giantswarm/kvm-operator, because they lack the label that it selects
	// by.
	err = r.Live.Get(ctx, name, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return said && config.DeletionTimestamp != nil, nil, nil
	case err != nil:
		return false, nil, microerror.Mask(err)
	}
	return !ownership.Has(namespace.Annotations), machine, nil
}

// legacyMachine returns the first Deployment of a node of the cluster that giantswarm/kvm-operator created, if there is
// one.
func (r Reader) legacyMachine(ctx context.Context, config *v1alpha1.KVMConfig) (*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	id := config.Spec.Cluster.ID
	if err := r.Cached.List(ctx, &list, client.InNamespace(key.Namespace(id)), client.DisableReadYourWritesConsistency); err != nil {
		return nil, microerror.Mask(err)
	}
	var first *appsv1.Deployment
	for i := range list.Items {
		if d := &list.Items[i]; state.IsLegacyMachine(d) && (first == nil || d.Name < first.Name) {
			first = d
		}
	}
	return first, nil
}
