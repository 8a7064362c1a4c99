package apply

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// rule is what to do about the fields of a kind that cannot be changed.
type rule struct {
	// keep puts what cannot be changed from live into desired, or says why it cannot.
	keep func(live, desired client.Object) error
	// recreate says that the object has to be deleted and made anew.
	recreate func(live, desired client.Object) bool
	// anchor says that other objects are believed because they lie in it, so that its mark has to name the very custom resource, and a label
	// of the original alone does not hand it over.
	anchor bool
	// wholeFields says that every intent of the kind speaks of the same fields, so that none is ever dropped.
	wholeFields bool
}

// rules is the immutable-field policy by kind; a kind without a rule can be changed in every field we set.
var rules = map[string]rule{
	"PersistentVolumeClaim":                        {keep: keepClaimSpec},
	"Deployment.apps":                              {keep: keepSelector},
	"ClusterRoleBinding.rbac.authorization.k8s.io": {recreate: roleRefDiffers},
	"Service":   {recreate: becomesHeadless},
	"Namespace": {anchor: true},
	// Traffic waits for these: one request must do.
	"EndpointSlice.discovery.k8s.io": {wholeFields: true},
}

// keepClaimSpec lets a bound volume grow and nothing else: data outlives every change of mind about class or mode.
func keepClaimSpec(live, desired client.Object) error {
	current, wanted := live.(*corev1.PersistentVolumeClaim), desired.(*corev1.PersistentVolumeClaim)
	size := wanted.Spec.Resources.Requests[corev1.ResourceStorage]
	have := current.Spec.Resources.Requests[corev1.ResourceStorage]
	wanted.Spec = *current.Spec.DeepCopy()
	if size.Cmp(have) > 0 && current.Status.Phase == corev1.ClaimBound {
		wanted.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	return nil
}

// keepSelector refuses a Deployment whose selector differs, for deleting it would stop a machine.
func keepSelector(live, desired client.Object) error {
	current, wanted := live.(*appsv1.Deployment), desired.(*appsv1.Deployment)
	if !equality.Semantic.DeepEqual(current.Spec.Selector, wanted.Spec.Selector) {
		return problem.Newf("ImmutableField", "Deployment %s/%s has the selector %q, which cannot be changed to %q; delete the Deployment when its machine may stop",
			live.GetNamespace(), live.GetName(), metav1.FormatLabelSelector(current.Spec.Selector), metav1.FormatLabelSelector(wanted.Spec.Selector))
	}
	return nil
}

// roleRefDiffers: a binding to another role is another binding; it is gone for a moment only and machines do not use it.
func roleRefDiffers(live, desired client.Object) bool {
	return live.(*rbacv1.ClusterRoleBinding).RoleRef != desired.(*rbacv1.ClusterRoleBinding).RoleRef
}

// becomesHeadless: a Service loses its address only by being made anew. Its EndpointSlices stay, for they have another owner.
func becomesHeadless(live, desired client.Object) bool {
	have, want := live.(*corev1.Service).Spec.ClusterIP, desired.(*corev1.Service).Spec.ClusterIP
	return want == corev1.ClusterIPNone && have != "" && have != want
}

// deletePropagation: a Deployment must stay until its pods have gone, or nobody would know that a machine still runs.
func deletePropagation(object client.Object) client.DeleteOption {
	if _, ok := object.(*appsv1.Deployment); ok {
		return client.PropagationPolicy(metav1.DeletePropagationForeground)
	}
	return client.PropagationPolicy(metav1.DeletePropagationBackground)
}
