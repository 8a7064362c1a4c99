package guests_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// TestFaultPowerOfANode: a machine starts again when its node does. If the node stays off and is tainted, the machine moves
// to another node, and stays there when the node comes back.
func TestFaultPowerOfANode(t *testing.T) {
	isLong(t)
	s, vm, seen := faulty(t, "power")
	s.patience = 3 * time.Minute // a node is silent for 50 seconds before it is not Ready
	pod := s.pod(t, vm)
	node := s.hostOf(t, pod)
	t.Cleanup(func() { s.restore(t, node) })
	powerCut(t, node)
	boot(t, node)
	s.isBack(t, vm, 2)
	if again := s.pod(t, vm); again.UID != pod.UID || again.Spec.NodeName != node.Name() {
		t.Errorf("after a short power cut the machine is in another pod, on %s", again.Spec.NodeName)
	}

	powerCut(t, node)
	off := time.Now()
	s.becomes(t, vm, "on a host that is silent", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "Ready")
		return c != nil && c.Reason == virtualmachine.ReasonHostSilent && s.Phase == v1.PhaseFailed
	})
	t.Logf("known to be silent after %s", time.Since(off).Round(time.Second))
	lab.Change(t, s.Lab, nodeObject(node), func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	})
	s.isBack(t, vm, 3)
	if again := s.pod(t, vm); again.UID == pod.UID || again.Spec.NodeName == node.Name() {
		t.Errorf("the machine is on %s still", again.Spec.NodeName)
	}

	s.restore(t, node)
	time.Sleep(10 * time.Second) // in which the kubelet would start the former pod
	if s.becomes(t, vm, "running", runs); seen.starts() != 3 {
		t.Errorf("QEMU was started %d times, want 3", seen.starts())
	}
}

// restore boots a node that is off, and removes its taint.
func (s stage) restore(t *testing.T, node *realcluster.Node) {
	t.Helper()
	lab.Change(t, s.Lab, nodeObject(node), func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	})
	if node.PID() == 0 {
		boot(t, node)
	}
}

func nodeObject(node *realcluster.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name()}}
}

// hostOf returns the node that runs a pod.
func (s stage) hostOf(t *testing.T, pod *corev1.Pod) *realcluster.Node {
	t.Helper()
	for _, node := range s.cluster.Nodes() {
		if node.Name() == pod.Spec.NodeName {
			return node
		}
	}
	t.Fatalf("no node is called %q", pod.Spec.NodeName)
	return nil
}

func powerCut(t *testing.T, node *realcluster.Node) {
	t.Helper()
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
}

func boot(t *testing.T, node *realcluster.Node) {
	t.Helper()
	if err := node.Boot(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(fmt.Errorf("booting %s: %w", node.Name(), err))
	}
}
