package drainer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestHostThatShutsDown: the kubelet reports the shutdown in its Node when it starts to end the pods, which are not
// deleted. Their machines are shut down in the time that is left.
func TestHostThatShutsDown(t *testing.T) {
	const down = "[container runtime is down, node is shutting down]"
	for name, test := range map[string]struct {
		ready   corev1.ConditionStatus
		message string
		want    bool
	}{
		"it is Ready":     {corev1.ConditionTrue, "kubelet is posting ready status", false},
		"it is not Ready": {corev1.ConditionFalse, "container runtime is down", false},
		"it shuts down":   {corev1.ConditionFalse, down, true},
		"it has shut down, and no longer reports":      {corev1.ConditionUnknown, "Kubelet stopped posting node status.", false},
		"it is Ready again, whatever it has just said": {corev1.ConditionTrue, down, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := masterPod("m1")
			pod.Spec.NodeName, pod.Finalizers = "host-1", []string{key.FinalizerDrainer}
			elsewhere := masterPod("m2")
			elsewhere.Spec.NodeName, elsewhere.Finalizers = "host-2", pod.Finalizers
			host := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: test.ready, Message: test.message},
			}}}
			r := &Reconciler{Client: fake.NewClientBuilder().WithObjects(pod, elsewhere, host).Build()}
			var want []reconcile.Request
			if test.want {
				want = []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}}}
			}
			if diff := cmp.Diff(want, r.onHost(t.Context(), host)); diff != "" {
				t.Errorf("other pods are considered (-want +got):\n%s", diff)
			}
			if r.concerns(t.Context(), pod) != test.want || r.concerns(t.Context(), elsewhere) {
				t.Error("another pod is on its way out")
			}
			if m, err := r.look(t.Context(), pod, &v1alpha1.KVMConfig{}, r.Client); test.want && (err != nil || !m.HostShutsDown) {
				t.Errorf("the machine does not know: %+v, %v", m, err)
			}
		})
	}
}
