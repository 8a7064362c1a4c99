package behaviour_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestMemberServiceOfBeforeLosesItsAddress: etcd members only accept peers whose address belongs to a name in their
// certificate. Services of an earlier operator had a cluster IP, which a Service cannot lose.
func TestMemberServiceOfBeforeLosesItsAddress(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("headl").Masters(3).Workers(1).Obj())
	name := client.ObjectKey{Namespace: key.Namespace("headl"), Name: "master-m1aaa"}
	now := &corev1.Service{}
	if err := theLab.Client.Get(t.Context(), name, now); err != nil {
		t.Fatal(err)
	}
	change(t, config, func(c *v1alpha1.KVMConfig) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key.AnnotationPaused, "true") })
	theLab.Delete(t, now)
	before := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: now.Labels, Annotations: now.Annotations},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: now.Spec.Ports},
	}
	lab.Eventually(t, lab.Timeout, func() error { return theLab.Client.Create(t.Context(), before.DeepCopy()) })
	change(t, config, func(c *v1alpha1.KVMConfig) { delete(c.Annotations, key.AnnotationPaused) })
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Client.Get(t.Context(), name, now); err != nil {
			return err
		}
		if now.Spec.ClusterIP != corev1.ClusterIPNone {
			return fmt.Errorf("it has the address %s", now.Spec.ClusterIP)
		}
		return nil
	})
	theLab.AwaitReady(t, config)
}
