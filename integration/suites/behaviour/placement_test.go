package behaviour_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
)

// TestMasterComesBackWhereItsDataIs: the host is stored once the first pod is bound, and every later pod runs there. If
// that is impossible, the master waits and does not start with empty data elsewhere.
func TestMasterComesBackWhereItsDataIs(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("place").Obj())
	first := podOf(t, config, "m0aaa")
	home := first.Spec.NodeName
	if stored := theLab.Current(t, config).Status.Nodes[0].EtcdHost; stored != home {
		t.Fatalf("the data is said to be on %q, the master runs on %q", stored, home)
	}

	theLab.Delete(t, first)
	awaitSuccessor(t, first, func(pod *corev1.Pod) error {
		if pod.Spec.NodeName != home {
			return fmt.Errorf("pod %s is on host %q, the data on %q", pod.Name, pod.Spec.NodeName, home)
		}
		return nil
	})

	second := podOf(t, config, "m0aaa")
	host := &corev1.Node{}
	host.Name = home
	lab.Change(t, theLab, host, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	defer lab.Change(t, theLab, host, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	theLab.Delete(t, second)
	awaitSuccessor(t, second, func(pod *corev1.Pod) error {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("pod %s on host %q waits for no host", pod.Name, pod.Spec.NodeName)
	})
}

// awaitSuccessor waits until the pod that replaced another satisfies the condition.
func awaitSuccessor(t *testing.T, before *corev1.Pod, condition func(*corev1.Pod) error) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		var pods corev1.PodList
		if err := theLab.Client.List(context.Background(), &pods, client.InNamespace(before.Namespace), client.MatchingLabels{"node": before.Labels["node"]}); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].UID != before.UID && pods.Items[i].DeletionTimestamp == nil {
				return condition(&pods.Items[i])
			}
		}
		return fmt.Errorf("pod %s has no successor", before.Name)
	})
}
