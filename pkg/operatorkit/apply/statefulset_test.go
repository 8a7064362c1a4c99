package apply

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func claimTemplate(name string, change func(*corev1.PersistentVolumeClaimSpec)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeMode: ptr.To(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	if change != nil {
		change(&c.Spec)
	}
	return c
}

func statefulSet(image string, replicas int32, claims ...corev1.PersistentVolumeClaim) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(replicas), VolumeClaimTemplates: claims,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}},
	}}
}

// TestStatefulSetsGetOtherClaimsWhileTheyHaveNoPod: with a pod, the former claims and the pod template that refers to
// them are kept. A larger size is no other claim, but one that does not exist yet gets it.
func TestStatefulSetsGetOtherClaimsWhileTheyHaveNoPod(t *testing.T) {
	larger := func(c *corev1.PersistentVolumeClaimSpec) {
		c.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	}
	class := func(c *corev1.PersistentVolumeClaimSpec) { c.StorageClassName = ptr.To("fast") }
	for name, test := range map[string]struct {
		wanted   []corev1.PersistentVolumeClaim
		replicas int32
		pods     int32
		old      bool
		same     bool
		recreate bool
	}{
		"the same claims":                 {[]corev1.PersistentVolumeClaim{claimTemplate("a", nil)}, 1, 1, false, true, false},
		"a larger one, stopped":           {[]corev1.PersistentVolumeClaim{claimTemplate("a", larger)}, 0, 0, false, true, true},
		"a larger one, running":           {[]corev1.PersistentVolumeClaim{claimTemplate("a", larger)}, 1, 1, false, true, false},
		"another class, running":          {[]corev1.PersistentVolumeClaim{claimTemplate("a", class)}, 1, 1, false, false, false},
		"another class, ending":           {[]corev1.PersistentVolumeClaim{claimTemplate("a", class)}, 0, 1, false, false, false},
		"another class, not yet observed": {[]corev1.PersistentVolumeClaim{claimTemplate("a", class)}, 0, 0, true, false, false},
		"another class, stopped":          {[]corev1.PersistentVolumeClaim{claimTemplate("a", class)}, 0, 0, false, false, true},
		"one more, stopped":               {[]corev1.PersistentVolumeClaim{claimTemplate("a", nil), claimTemplate("b", nil)}, 0, 0, false, false, true},
		"none, stopped":                   {nil, 0, 0, false, false, true},
		"none, running":                   {nil, 1, 1, false, false, false},
	} {
		live := statefulSet("old", test.replicas, claimTemplate("a", nil))
		live.Generation, live.Status.Replicas, live.Status.ObservedGeneration = 2, test.pods, 2
		if test.old {
			live.Status.ObservedGeneration = 1
		}
		wanted := statefulSet("new", 1, test.wanted...)
		if got := claimsMayChange(live, wanted); got != test.recreate {
			t.Errorf("%s: it is recreated: %t, want %t", name, got, test.recreate)
		}
		if err := keepClaimTemplates(live, wanted); err != nil {
			t.Fatal(err)
		}
		image := map[bool]string{true: "new", false: "old"}[test.same]
		claims := wanted.Spec.VolumeClaimTemplates
		if got := wanted.Spec.Template.Spec.Containers[0].Image; got != image || len(claims) != 1 || !sameClaimTemplates(live, wanted) {
			t.Errorf("%s: the template is the %s one, want the %s one; claims %v", name, got, image, claims)
		}
	}
}

// TestClaimsAreNoLongerDeletedWithTheirStatefulSet: while it had no pod, only its recreation takes that back.
func TestClaimsAreNoLongerDeletedWithTheirStatefulSet(t *testing.T) {
	policy := func(set *appsv1.StatefulSet, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) *appsv1.StatefulSet {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: whenDeleted}
		return set
	}
	const keeps, deletes = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for _, test := range []struct {
		have, want appsv1.PersistentVolumeClaimRetentionPolicyType
		recreate   bool
	}{{keeps, keeps, false}, {keeps, deletes, false}, {deletes, deletes, false}, {deletes, keeps, true}} {
		live, wanted := policy(statefulSet("a", 0), test.have), policy(statefulSet("a", 0), test.want)
		if got := claimsMayChange(live, wanted); got != test.recreate {
			t.Errorf("%s, then %s: it is recreated: %t", test.have, test.want, got)
		}
	}
	if got := propagationOf(verbPrune, &appsv1.StatefulSet{}); got != metav1.DeletePropagationOrphan {
		t.Errorf("a StatefulSet is deleted with propagation %s", got)
	}
}

// TestPodsKeepNoNetworkOfTheHost that another field manager gave them.
func TestPodsKeepNoNetworkOfTheHost(t *testing.T) {
	set := func(host bool) *appsv1.StatefulSet {
		s := statefulSet("image", 1)
		s.Spec.Template.Spec.HostNetwork = host
		return s
	}
	for _, test := range []struct{ live, wanted, dropped bool }{{true, false, true}, {true, true, false}, {false, false, false}, {false, true, false}} {
		if got := hostNetwork(set(test.live), set(test.wanted)) != nil; got != test.dropped {
			t.Errorf("%+v: it is dropped: %t", test, got)
		}
	}
}
