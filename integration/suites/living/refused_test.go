package living_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestRefusedServiceDelaysNoNode: the cluster keeps running with its existing Services. Restarted machines are
// accepted, and packets reach them.
func TestRefusedServiceDelaysNoNode(t *testing.T) {
	t.Parallel()
	l := createJoined(t, crowd, fixture.MakeCluster("refused").Workers(1))
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.KVM.PortMappings = []v1alpha1.PortMapping{{Name: "http", NodePort: 70, TargetPort: 30010}}
	})
	l.await(t, wanted{kind: "InfrastructureReady", status: metav1.ConditionFalse, reason: "Refused", parts: []string{"nodePort"}})
	worker := l.replacePod(t, "w0aaa")
	l.join(t, worker)
	l.awaitBehind(t, key.RoleWorker, worker)
	master := l.replacePod(t, "m0aaa")
	l.awaitBehind(t, key.RoleMaster, master)
	l.awaitBehind(t, key.DeploymentName(key.RoleMaster, "m0aaa"), master)
	l.await(t, wanted{kind: "InfrastructureReady", status: metav1.ConditionFalse, reason: "Refused", without: []string{"endpoints: "}}, isTrue("Available"))
}

// replacePod deletes the pod of a node and returns the next one once it has an address.
func (l *living) replacePod(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	before := l.pod(t, node)
	must(t, theLab.Client.Delete(context.Background(), before))
	var next *corev1.Pod
	lab.Eventually(t, patience, func() error {
		if next = l.pod(t, node); next.UID == before.UID || next.Status.PodIP == "" {
			return errNotYet
		}
		return nil
	})
	return next
}
