package smolvm

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

func TestWhichReportsAreNews(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	for name, test := range map[string]struct {
		change func(*v1alpha1.SmolVMNode)
		news   bool
	}{
		"nothing":                              {func(*v1alpha1.SmolVMNode) {}, false},
		"that it is still there":               {func(n *v1alpha1.SmolVMNode) { n.Status.HeartbeatTime, n.ResourceVersion = at(time.Minute), "2" }, false},
		"that it is still there, at the limit": {func(n *v1alpha1.SmolVMNode) { n.Status.HeartbeatTime = at(2 * time.Minute) }, false},
		"that it is back":                      {func(n *v1alpha1.SmolVMNode) { n.Status.HeartbeatTime = at(2*time.Minute + 1) }, true},
		"when a condition changed, not what to": {func(n *v1alpha1.SmolVMNode) {
			n.Status.Conditions[0].LastTransitionTime, n.Status.Conditions[0].Message = *at(time.Hour), "other words"
		}, false},
		"a condition":             {func(n *v1alpha1.SmolVMNode) { n.Status.Conditions[0].Status = metav1.ConditionFalse }, true},
		"labels":                  {func(n *v1alpha1.SmolVMNode) { n.Labels = map[string]string{"a": "c"} }, true},
		"where it is asked":       {func(n *v1alpha1.SmolVMNode) { n.Status.Endpoint.Port = 2 }, true},
		"its certificate":         {func(n *v1alpha1.SmolVMNode) { n.Status.Endpoint.Certificate = "b" }, true},
		"its room":                {func(n *v1alpha1.SmolVMNode) { n.Status.Allocatable.CPUs = 2 }, true},
		"another node":            {func(n *v1alpha1.SmolVMNode) { n.Status.NodeUID = "b" }, true},
		"another object":          {func(n *v1alpha1.SmolVMNode) { n.UID = "b" }, true},
		"no heartbeat since then": {func(n *v1alpha1.SmolVMNode) { n.Status.HeartbeatTime = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "a", Labels: map[string]string{"a": "b"}}}
			before.Status = v1alpha1.SmolVMNodeStatus{
				NodeUID: "a", HeartbeatTime: at(0), Endpoint: v1alpha1.Endpoint{PodIP: "10.0.0.1", Port: 1, Certificate: "a"}, Allocatable: v1alpha1.Allocatable{CPUs: 1},
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReported, LastTransitionTime: *at(0)}},
			}
			after := before.DeepCopy()
			test.change(after)
			if got := isNews(before, after); got != test.news {
				t.Errorf("it is news: %t, want %t", got, test.news)
			}
		})
	}
}

// TestTheCacheHasOfNodesWhatIsAskedBeforeAMachineIsPlaced, and nothing that changes with every report of a kubelet.
func TestTheCacheHasOfNodesWhatIsAskedBeforeAMachineIsPlaced(t *testing.T) {
	host := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "a", Annotations: map[string]string{"a": "b"}}}
	host.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "a"}}, ProviderID: "b"}
	host.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), Message: "kubelet is posting ready status"},
	}
	trimmed, err := Trim(host)
	if err != nil {
		t.Fatal(err)
	}
	got := trimmed.(*corev1.Node)
	if !got.Spec.Unschedulable || len(got.Spec.Taints) != 1 || got.Spec.ProviderID != "" || got.Annotations != nil || got.UID != "a" ||
		len(got.Status.Conditions) != 1 || got.Status.Conditions[0] != (corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}) {
		t.Errorf("it is %+v", got)
	}
}
