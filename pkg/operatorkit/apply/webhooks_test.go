package apply_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// stopped returns a StatefulSet without pods, whose claims have a size.
func (b *bench) stopped(name, size string) *appsv1.StatefulSet {
	labels := map[string]string{key.LabelApp: name}
	return &appsv1.StatefulSet{ObjectMeta: b.meta(name), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}}},
	}}
}

// TestWhatAWebhookChangesAtCreationIsNotRecreatedForEver: the claim templates of a StatefulSet are immutable, so one without
// pods is recreated to get others. A webhook that completes them at each creation, as backups and default classes do, must not
// make that endless.
func TestWhatAWebhookChangesAtCreationIsNotRecreatedForEver(t *testing.T) {
	for name, webhook := range map[string]func(*corev1.PersistentVolumeClaim){
		"a label":        func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"backup": "daily"} },
		"a StorageClass": func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("fast") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.through(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				webhook(&object.(*appsv1.StatefulSet).Spec.VolumeClaimTemplates[0])
				return c.Create(ctx, object, options...)
			}, Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if err := c.Delete(ctx, object, options...); err != nil {
					return err
				}
				// The garbage collector, which is not there, lets it go once its dependents are orphaned.
				orphaned := now(t, b.stopped("vm", "1Gi"))
				orphaned.Finalizers = nil
				return direct.Update(ctx, orphaned)
			}})
			// passes applies until a pass sends nothing, each time after the controller of StatefulSets has seen it.
			passes := func(size string) (methods []string) {
				for range 5 {
					methods = append(methods, b.apply(set(b.stopped("vm", size)))...)
					there := now(t, b.stopped("vm", size))
					there.Status.ObservedGeneration = there.Generation
					do(t, direct.Status().Update(t.Context(), there))
					seen(t, there)
				}
				return methods
			}
			count := func(methods []string, method string) (n int) {
				for _, m := range methods {
					if m == method {
						n++
					}
				}
				return n
			}
			first := passes("1Gi")
			equal(t, "creations at first", 1, count(first, "POST"))
			equal(t, "deletions at first", 0, count(first, "DELETE"))
			larger := passes("2Gi")
			equal(t, "creations for another size", 1, count(larger, "POST"))
			equal(t, "size", "2Gi", now(t, b.stopped("vm", "2Gi")).Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String())
		})
	}
}
