package service

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestOfHostsOnlyTheirStateIsKept: a management cluster may have thousands of hosts, and each one updates its status
// all the time.
func TestOfHostsOnlyTheirStateIsKept(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "node is shutting down"}
	seen := ready
	seen.LastHeartbeatTime = metav1.Now()
	host := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "host-1", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, seen}, Images: []corev1.ContainerImage{{Names: []string{"x"}}},
		},
	}
	kept, err := CacheOptions(labels.Everything()).DefaultTransform(host)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "host-1", UID: "u", ResourceVersion: "7"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}},
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("another part of a host is kept (-want +got):\n%s", diff)
	}
}

// TestOfPodsWhatDecidesIsKept: the endpoints depend on the readiness gates of a pod, and its placement on its scheduling
// gates.
func TestOfPodsWhatDecidesIsKept(t *testing.T) {
	spec := corev1.PodSpec{
		NodeName:        "host-1",
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "a"}},
		ReadinessGates:  []corev1.PodReadinessGate{{ConditionType: "b"}},
	}
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	pod.Spec.Containers, pod.Spec.Volumes = []corev1.Container{{Name: "k8s-kvm"}}, []corev1.Volume{{Name: "data"}}
	kept, err := CacheOptions(labels.Everything()).DefaultTransform(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&corev1.Pod{Spec: spec}, kept); diff != "" {
		t.Errorf("another part of a pod is kept (-want +got):\n%s", diff)
	}
}
