package observe

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// OfCluster finds the KVMConfigs with the cluster ID in an object's label.
func (r Reader) OfCluster(ctx context.Context, object client.Object) []reconcile.Request {
	return r.Find(ctx, client.MatchingFields{IndexCluster: object.GetLabels()[key.LabelGSCluster]})
}

// OfOwner finds the KVMConfig of an object that the engine created; objects without an owner are found by their
// cluster, because they may be adopted.
func (r Reader) OfOwner(ctx context.Context, object client.Object) []reconcile.Request {
	owner, named := ownership.Parse(object.GetAnnotations())
	switch {
	case !named:
		return r.OfCluster(ctx, object)
	case owner.Kind != key.KindKVMConfig:
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}}}
}

// Find finds the KVMConfigs of an index of the cache.
func (r Reader) Find(ctx context.Context, by client.MatchingFields) []reconcile.Request {
	var list v1alpha1.KVMConfigList
	// The list comes from the cache and fails only if the index is missing, which the setup of the caches rules out.
	if err := r.Cached.List(ctx, &list, by, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Spec lets updates of a KVMConfig pass that change more than its status and its version, and those that change one
// condition. A controller passes the type of its own condition: it may have decided on a cache that did not show the
// condition that it wrote last.
func Spec(conditionType string) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.KVMConfig), e.ObjectNew.(*v1alpha1.KVMConfig)
		condition := func(c *v1alpha1.KVMConfig) *metav1.Condition {
			return meta.FindStatusCondition(c.Status.Conditions, conditionType)
		}
		same := equality.Semantic.DeepEqual
		return before.Generation != after.Generation || !same(before.DeletionTimestamp, after.DeletionTimestamp) ||
			!same(before.Annotations, after.Annotations) || !same(before.Labels, after.Labels) ||
			!same(before.Finalizers, after.Finalizers) || !same(condition(before), condition(after))
	}}
}
