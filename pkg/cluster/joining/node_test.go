package joining_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestLabelsOfNodes covers the labels that kubelets may not set themselves, and those that readers of the original's
// labels expect.
func TestLabelsOfNodes(t *testing.T) {
	for name, test := range map[string]struct {
		role, version string
		want          map[string]string
	}{
		"a master": {"master", "4.0.0", map[string]string{
			"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/master": "", "kubernetes.io/role": "master",
			"giantswarm.io/provider": "kvm", "giantswarm.io/cluster": "ab1cd", "kvm-operator.giantswarm.io/version": "4.0.0",
		}},
		"a worker": {"worker", "4.0.0", map[string]string{
			"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "worker",
			"giantswarm.io/provider": "kvm", "giantswarm.io/cluster": "ab1cd", "kvm-operator.giantswarm.io/version": "4.0.0",
		}},
		"a worker of no version": {"worker", "", map[string]string{
			"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "worker", "giantswarm.io/provider": "kvm", "giantswarm.io/cluster": "ab1cd",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, joining.Labels("ab1cd", test.role, test.version)); diff != "" {
				t.Errorf("other labels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMissingLabels: missing labels are those to write; nil means that no request is needed.
func TestMissingLabels(t *testing.T) {
	type labels = map[string]string
	for name, test := range map[string]struct{ have, want, missing labels }{
		"all are there":         {labels{"a": "", "b": "1", "c": "x"}, labels{"a": "", "b": "1"}, nil},
		"one has another value": {labels{"a": "", "b": "2"}, labels{"a": "", "b": "1"}, labels{"b": "1"}},
		"an empty one is not there": {
			labels{"b": "1"}, labels{"a": "", "b": "1"}, labels{"a": ""},
		},
		"the Node has none": {nil, labels{"a": "1"}, labels{"a": "1"}},
		"none is wanted":    {labels{"a": "1"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: test.have}}
			if diff := cmp.Diff(test.missing, joining.Missing(node, test.want)); diff != "" {
				t.Errorf("others are missing (-want +got):\n%s", diff)
			}
		})
	}
}

func nodeWith(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
}

func gate(status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionNodeReady, Status: status, Reason: reason, Message: message}
}

// TestReadinessGate: the gate follows the Ready condition of the Node, and says so if there is no Node.
func TestReadinessGate(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	with := func(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message}
	}
	deleted := nodeWith(ready)
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, test := range map[string]struct {
		node *corev1.Node
		want corev1.PodCondition
	}{
		"Ready":                      {nodeWith(ready), gate("True", "KubeletReady", "kubelet is posting ready status")},
		"not Ready":                  {nodeWith(with("False", "KubeletNotReady", "PLEG is not healthy: pleg was last seen active 3m2.5s ago; threshold is 3m0s")), gate("False", "KubeletNotReady", "PLEG is not healthy: pleg was last seen active … ago; threshold is …")},
		"silent":                     {nodeWith(with("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")), gate("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")},
		"an unknown status":          {nodeWith(with("Perhaps", "R", "m")), gate("Unknown", "R", "m")},
		"other conditions are true":  {nodeWith(corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}), gate("Unknown", "NodeSilent", "the kubelet has not reported yet")},
		"the Node is being deleted":  {deleted, gate("False", "NodeDeleted", "node deleted in workload cluster")},
		"there is no Node":           {nil, gate("False", "NodeMissing", "no node in workload cluster")},
		"Ready comes behind another": {nodeWith(corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, ready), gate("True", "KubeletReady", "kubelet is posting ready status")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, joining.NodeReady(test.node)); diff != "" {
				t.Errorf("another condition (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangedConditions: a condition is written only if it differs.
func TestChangedConditions(t *testing.T) {
	condition := gate("False", "R", "m")
	for name, test := range map[string]struct {
		have []corev1.PodCondition
		want bool
	}{
		"the pod has none":       {nil, true},
		"the same":               {[]corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}, {Type: condition.Type, Status: "False", Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(noon)}}, false},
		"another status":         {[]corev1.PodCondition{gate("True", "R", "m")}, true},
		"another reason":         {[]corev1.PodCondition{gate("False", "S", "m")}, true},
		"another message":        {[]corev1.PodCondition{gate("False", "R", "n")}, true},
		"the same of other type": {[]corev1.PodCondition{{Type: corev1.PodReady, Status: "False", Reason: "R", Message: "m"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: test.have}}
			if got := joining.Changed(pod, condition); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestWordsOfNodesAreCut: root on a node can write anything to the status of its Node, and the operator has to store
// what it passes on.
func TestWordsOfNodesAreCut(t *testing.T) {
	long := strings.Repeat("ü<", 1<<19)
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "False", Reason: long, Message: long}}}}
	if gate := joining.NodeReady(node); len(gate.Reason) > 128 || len(gate.Message) > 1<<10 {
		t.Errorf("the pod gets a reason of %d bytes and a message of %d", len(gate.Reason), len(gate.Message))
	}
}
