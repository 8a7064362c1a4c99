package apply_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// claim requests a volume.
func (b *bench) claim(size, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: b.meta("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		StorageClassName: &class,
	}}
}

// TestVolumesGrowAndChangeInNothingElse: data is kept, regardless of later changes to the spec.
func TestVolumesGrowAndChangeInNothingElse(t *testing.T) {
	b := newBench(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}, Provisioner: "example.org/none", AllowVolumeExpansion: ptr.To(true)}
	do(t, direct.Create(t.Context(), class))
	b.apply(set(b.claim("1Gi", class.Name)))
	bound := now(t, b.claim("1Gi", class.Name))
	bound.Spec.VolumeName = "pv-" + b.namespace
	do(t, direct.Update(t.Context(), bound))
	bound.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}
	do(t, direct.Status().Update(t.Context(), bound))
	seen(t, bound)
	type state struct{ Size, Class, Volume, Mode string }
	current := func() state {
		c := now(t, bound)
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		return state{size.String(), *c.Spec.StorageClassName, c.Spec.VolumeName, string(c.Spec.AccessModes[0])}
	}
	for _, step := range []struct{ sentence, size, class, want string }{
		{"it grows", "2Gi", class.Name, "2Gi"},
		{"it does not shrink", "1Gi", class.Name, "2Gi"},
		{"its class stays", "2Gi", "another", "2Gi"},
		{"it grows although the class differs", "3Gi", "another", "3Gi"},
	} {
		wanted := b.claim(step.size, step.class)
		wanted.Spec.AccessModes[0] = corev1.ReadWriteOncePod
		b.apply(set(wanted))
		equal(t, step.sentence, state{step.want, class.Name, "pv-" + b.namespace, "ReadWriteOnce"}, current())
		equal(t, step.sentence+": requests of the next pass", []string(nil), b.apply(set(wanted)))
	}
}

// TestSelectorsAreRefused: recreating the Deployment would stop its machine.
func TestSelectorsAreRefused(t *testing.T) {
	b := newBench(t)
	theirs := b.deployment("a", "image:1")
	theirs.Spec.Selector.MatchLabels["old"], theirs.Spec.Template.Labels["old"] = "x", "x"
	do(t, direct.Create(t.Context(), theirs))
	seen(t, theirs)
	want := b.in(`ImmutableField: Deployment NS/a has the selector "app=a,old=x", which cannot be changed to "app=a"; delete the Deployment when its machine may stop`)
	equal(t, "problem", want, said(t, b.try(set(b.deployment("a", "image:2")))))
	equal(t, "their Deployment", theirs.ResourceVersion, now(t, theirs).ResourceVersion)
}

// TestRoleBindingsAreRecreated if their role changes, because the API server does not allow to change it.
func TestRoleBindingsAreRecreated(t *testing.T) {
	b := newBench(t)
	binding := func(role string) *rbacv1.ClusterRoleBinding {
		meta := b.meta(b.namespace)
		meta.Namespace = ""
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: b.namespace, Name: b.namespace}},
		}
	}
	b.apply(set(binding("old")))
	equal(t, "requests", []string{"DELETE", "POST"}, b.apply(set(binding("new"))))
	got := now(t, binding(""))
	equal(t, "role and owner", []string{"new", b.owner().String()}, []string{got.RoleRef.Name, got.Annotations[ownership.Annotation]})
	equal(t, "requests of the next pass", []string(nil), b.apply(set(binding("new"))))
	foreign(t, binding(""), func(c *rbacv1.ClusterRoleBinding) { c.Finalizers = []string{"example.org/holds"} })
	if err := b.try(set(binding("newer"))); !apply.IsOutdated(err) {
		t.Errorf("err = %v while a finalizer holds the old binding, want one that says outdated", err)
	}
	foreign(t, binding(""), func(c *rbacv1.ClusterRoleBinding) { c.Finalizers = nil })
	b.apply(set(binding("newer")))
	equal(t, "role", "newer", now(t, binding("")).RoleRef.Name)
}

// TestReleasedVolumesAreClaimableAgain, unless they were changed in the meantime.
func TestReleasedVolumesAreClaimableAgain(t *testing.T) {
	b := newBench(t)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: b.namespace, Name: "data"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	}}
	do(t, direct.Create(t.Context(), volume))
	stale := volume.DeepCopy()
	volume.Labels = map[string]string{"changed": "meanwhile"}
	do(t, direct.Update(t.Context(), volume))
	err := b.engine.ReleaseVolume(t.Context(), stale)
	equal(t, "error", "release PersistentVolume "+b.namespace+": another client changed it at the same time", err.Error())
	equal(t, "still claimed", true, now(t, volume).Spec.ClaimRef != nil)
	do(t, b.engine.MarkVolume(t.Context(), volume, key.AnnotationDataOf, "tenant-a"))
	do(t, b.engine.ReleaseVolume(t.Context(), now(t, volume)))
	equal(t, "whose data it is", "tenant-a", now(t, volume).Annotations[key.AnnotationDataOf])
	equal(t, "still claimed", false, now(t, volume).Spec.ClaimRef != nil)
	do(t, direct.Delete(t.Context(), now(t, volume)))
}
