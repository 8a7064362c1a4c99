package apply

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// rule says how to handle the immutable fields of a kind.
type rule struct {
	// keep copies immutable fields from live to desired, or says why it cannot.
	keep func(live, desired client.Object) error
	// recreate says that the object has to be deleted and created again.
	recreate func(live, desired client.Object) bool
	// drop returns a merge patch that removes a field that another field manager has set in live and that must not stay;
	// nil if there is none.
	drop func(live, desired client.Object) []byte
	// anchor says that other objects are trusted because they lie in this one. Its annotation therefore has to name
	// exactly this custom resource, and a label of the original is not enough to adopt it. It also records steps that are
	// taken once, such as a restore, so an apply of the kind carries the version of live.
	anchor bool
	// prepare completes every intent of the kind before it is compared and hashed.
	prepare func(desired client.Object)
	// merge copies to desired what others own of live, before the two are compared. An apply of the kind carries the
	// version of live, because it would otherwise take back what another client has changed since.
	merge func(live, desired client.Object)
	// wholeFields says that every intent of the kind sets the same fields, so that none is ever dropped.
	wholeFields bool
}

// rules is the immutable-field policy by kind; a kind without a rule can be changed in every field we set.
var rules = map[string]rule{
	"PersistentVolumeClaim":                        {keep: keepClaimSpec},
	"Deployment.apps":                              {keep: keepSelector},
	"ClusterRoleBinding.rbac.authorization.k8s.io": {recreate: roleRefDiffers},
	"StatefulSet.apps":                             {keep: keepClaimTemplates, recreate: claimsMayChange, drop: hostNetwork},
	"Service":                                      {recreate: becomesHeadless},
	"Namespace":                                    {anchor: true},
	"VirtualMachine.kubevirt.io":                   {prepare: recordDevices, merge: mergeVirtualMachine},
	// Traffic waits for these, so an update must take only one request.
	"EndpointSlice.discovery.k8s.io": {wholeFields: true},
}

// keepClaimSpec allows a bound volume only to grow: data is kept, regardless of changes to class or mode.
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

// keepSelector rejects a Deployment whose selector differs, because deleting it would stop a machine.
func keepSelector(live, desired client.Object) error {
	current, wanted := live.(*appsv1.Deployment), desired.(*appsv1.Deployment)
	if !equality.Semantic.DeepEqual(current.Spec.Selector, wanted.Spec.Selector) {
		return problem.Newf("ImmutableField", "Deployment %s/%s has the selector %q, which cannot be changed to %q; delete the Deployment when its machine may stop",
			live.GetNamespace(), live.GetName(), metav1.FormatLabelSelector(current.Spec.Selector), metav1.FormatLabelSelector(wanted.Spec.Selector))
	}
	return nil
}

// roleRefDiffers reports whether a binding is to another role, and therefore another binding. Recreating it is safe because
// it is gone only for a moment and machines do not use it.
func roleRefDiffers(live, desired client.Object) bool {
	return live.(*rbacv1.ClusterRoleBinding).RoleRef != desired.(*rbacv1.ClusterRoleBinding).RoleRef
}

// becomesHeadless reports whether a Service has to lose its address, which needs its recreation. Its EndpointSlices are
// kept because they have another owner.
func becomesHeadless(live, desired client.Object) bool {
	have, want := live.(*corev1.Service).Spec.ClusterIP, desired.(*corev1.Service).Spec.ClusterIP
	return want == corev1.ClusterIPNone && have != "" && have != want
}

// claimsMayChange reports whether a StatefulSet that has no pod needs its recreation: because it has to get other claim
// templates, or because its claims are no longer to be deleted with it. Its deletion orphans the claims, see
// propagationOf. Recreated beside a pod that lacks a claim, a StatefulSet neither accepts nor replaces that pod
// (kubernetes/kubernetes#141876).
func claimsMayChange(live, desired client.Object) bool {
	current, wanted := live.(*appsv1.StatefulSet), desired.(*appsv1.StatefulSet)
	idle := ptr.Deref(current.Spec.Replicas, 1) == 0 && current.Status.Replicas == 0 && current.Status.ObservedGeneration == current.Generation
	return idle && (!equalClaimTemplates(current, wanted) || deletesClaims(current) && !deletesClaims(wanted))
}

// deletesClaims returns whether claims are deleted with a StatefulSet. The controller of StatefulSets has then made it
// their owner, and takes that back only for those of a pod.
func deletesClaims(set *appsv1.StatefulSet) bool {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// equalClaimTemplates reports whether new claims would be the same ones.
func equalClaimTemplates(live, wanted *appsv1.StatefulSet) bool {
	return sameClaimTemplates(live, wanted) &&
		slices.EqualFunc(live.Spec.VolumeClaimTemplates, wanted.Spec.VolumeClaimTemplates, func(have, want corev1.PersistentVolumeClaim) bool {
			return equality.Semantic.DeepEqual(have.Labels, want.Labels) && equality.Semantic.DeepEqual(have.Annotations, want.Annotations) &&
				equality.Semantic.DeepEqual(have.Spec.Resources, want.Spec.Resources) &&
				equality.Semantic.DeepEqual(have.Spec.DataSourceRef, want.Spec.DataSourceRef) &&
				equality.Semantic.DeepEqual(have.Spec.VolumeAttributesClassName, want.Spec.VolumeAttributesClassName)
		})
}

// hostNetwork removes the network of the host from pods that are to have one of their own. VM-Operator gives it to all its
// machines, and an applied template cannot say that there is none.
func hostNetwork(live, desired client.Object) []byte {
	if live.(*appsv1.StatefulSet).Spec.Template.Spec.HostNetwork && !desired.(*appsv1.StatefulSet).Spec.Template.Spec.HostNetwork {
		return []byte(`{"spec":{"template":{"spec":{"hostNetwork":null}}}}`)
	}
	return nil
}

// keepClaimTemplates keeps the claim templates, which are immutable, and what else cannot be changed. If they differ, the
// pod template is kept too, because it refers to them.
func keepClaimTemplates(live, desired client.Object) error {
	current, wanted := live.(*appsv1.StatefulSet), desired.(*appsv1.StatefulSet)
	if !sameClaimTemplates(current, wanted) {
		wanted.Spec.Template = *current.Spec.Template.DeepCopy()
	}
	wanted.Spec.VolumeClaimTemplates = nil
	for _, c := range current.Spec.VolumeClaimTemplates {
		c = *c.DeepCopy()
		c.Status = corev1.PersistentVolumeClaimStatus{}
		wanted.Spec.VolumeClaimTemplates = append(wanted.Spec.VolumeClaimTemplates, c)
	}
	wanted.Spec.Selector, wanted.Spec.ServiceName, wanted.Spec.PodManagementPolicy = current.Spec.Selector, current.Spec.ServiceName, current.Spec.PodManagementPolicy
	return nil
}

// sameClaimTemplates compares the templates by what decides which volume a claim gets. A larger size is no other
// template, because an existing claim is grown.
func sameClaimTemplates(live, wanted *appsv1.StatefulSet) bool {
	return slices.EqualFunc(live.Spec.VolumeClaimTemplates, wanted.Spec.VolumeClaimTemplates, func(have, want corev1.PersistentVolumeClaim) bool {
		mode := corev1.PersistentVolumeFilesystem
		return have.Name == want.Name && have.Spec.VolumeName == want.Spec.VolumeName &&
			ptr.Deref(have.Spec.VolumeMode, mode) == ptr.Deref(want.Spec.VolumeMode, mode) &&
			equality.Semantic.DeepEqual(have.Spec.StorageClassName, want.Spec.StorageClassName) &&
			equality.Semantic.DeepEqual(have.Spec.AccessModes, want.Spec.AccessModes) &&
			equality.Semantic.DeepEqual(have.Spec.Selector, want.Spec.Selector) &&
			equality.Semantic.DeepEqual(have.Spec.DataSource, want.Spec.DataSource)
	})
}

// propagationOf returns foreground deletion for a Deployment: it must exist until its pods are gone, or it would be
// unknown that a machine still runs. It returns orphaning for a StatefulSet, which is only deleted to be recreated: its
// claims may name it as their owner. So does the claim of a DataVolume, which is ended when it has filled the claim; its
// deletion with all that the owner has takes the claim with it.
func propagationOf(verb string, object client.Object) metav1.DeletionPropagation {
	switch object.(type) {
	case *appsv1.Deployment:
		return metav1.DeletePropagationForeground
	case *appsv1.StatefulSet:
		return metav1.DeletePropagationOrphan
	case *cdiv1.DataVolume:
		if verb == verbEnd {
			return metav1.DeletePropagationOrphan
		}
	}
	return metav1.DeletePropagationBackground
}
