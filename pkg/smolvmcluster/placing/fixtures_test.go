package placing

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

var now = time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)

// machine is a SmolVM that fits on node, and what a test changes of it.
func machine(name string, changes ...func(*v1alpha1.SmolVM)) *v1alpha1.SmolVM {
	vm := &v1alpha1.SmolVM{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: v1alpha1.SmolVMSpec{
			Image: "alpine", NodeSelector: map[string]string{"zone": "a"}, Resources: v1alpha1.Resources{CPUs: 2, MemoryMiB: 1024},
			Storage: v1alpha1.Storage{StorageGiB: 20, OverlayGiB: 10}, Network: v1alpha1.Network{Ports: []v1alpha1.Port{{HostPort: 8080, GuestPort: 80}}},
		},
	}
	for _, change := range changes {
		change(vm)
	}
	return vm
}

// node is a node that suits, and what a test changes of it.
func node(name string, changes ...func(*Node)) Node {
	heartbeat := metav1.NewTime(now)
	n := Node{
		Runtime: &v1alpha1.SmolVMNode{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}},
			Status: v1alpha1.SmolVMNodeStatus{
				ProtocolVersion: v1alpha1.ProtocolVersion, HeartbeatTime: &heartbeat, Endpoint: v1alpha1.Endpoint{PodIP: "192.0.2.1", Port: 9443},
				Allocatable: v1alpha1.Allocatable{CPUs: 8, MemoryMiB: 8192, StorageGiB: 400}, Conditions: conditions(true, true, true, true),
			},
		},
		Host: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
	}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func conditions(ready, runtime, schedulable, kvm bool) []metav1.Condition {
	var all []metav1.Condition
	for kind, holds := range map[string]bool{
		v1alpha1.ConditionReady: ready, v1alpha1.ConditionRuntimeReady: runtime, v1alpha1.NodeConditionSchedulable: schedulable, v1alpha1.NodeConditionKVM: kvm,
	} {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		all = append(all, metav1.Condition{Type: kind, Status: status})
	}
	return all
}

// claim is what another SmolVM takes of node.
func claim(name, node string, changes ...func(*v1alpha1.SmolVM)) Claim {
	vm := machine(name, changes...)
	vm.Status.NodeName = node
	return ClaimOf(vm)
}

func withPort(port int32) func(*v1alpha1.SmolVM) {
	return func(vm *v1alpha1.SmolVM) { vm.Spec.Network.Ports = []v1alpha1.Port{{HostPort: port, GuestPort: 80}} }
}
