package node_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/node"
)

func TestOnlyNodesWithoutAMachineAreStale(t *testing.T) {
	for name, test := range map[string]struct {
		ready          corev1.ConditionStatus
		ours, pod, end bool
		phase          corev1.PodPhase
		want           bool
	}{
		"a Node whose pod is gone":                             {ready: "False", ours: true, want: true},
		"one that has not reported for some time":              {ready: "Unknown", ours: true, want: true},
		"one that has never reported":                          {ours: true, want: true},
		"one that reports without a pod runs somewhere":        {ready: "True", ours: true},
		"one whose pod exists may come back":                   {ready: "Unknown", ours: true, pod: true},
		"one whose pod has ended, with its host":               {ready: "Unknown", ours: true, pod: true, phase: "Failed", want: true},
		"one whose pod has ended, and that reports":            {ready: "True", ours: true, pod: true, phase: "Failed"},
		"a healthy one":                                        {ready: "True", ours: true, pod: true},
		"one that another client has added":                    {ready: "Unknown"},
		"one that is being removed already":                    {ready: "False", ours: true, end: true},
		"one that another client has added, with a pod's name": {ready: "False", pod: true},
		"one that is being removed and whose pod exists":       {ready: "False", ours: true, pod: true, end: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-a-1"}}
			if test.ours {
				n.Labels = joining.Labels("ab1cd", "worker", "")
			}
			if test.ready != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.ready}}
			}
			if test.end {
				n.DeletionTimestamp = ptr.To(metav1.Now())
			}
			var pods []corev1.Pod
			if test.pod {
				pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Status: corev1.PodStatus{Phase: test.phase}})
			}
			got := len(node.Stale("ab1cd", []corev1.Node{n}, pods)) == 1
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("stale (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodesThatRunSomewhereAreNamed: with the certificate of a removed node a client can register its Node again.
func TestNodesThatRunSomewhereAreNamed(t *testing.T) {
	made := func(name string, status corev1.ConditionStatus) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "runs"}}, {ObjectMeta: metav1.ObjectMeta{Name: "ended"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}}
	nodes := []corev1.Node{made("runs", "True"), made("removed", "True"), made("ended", "True"), made("silent", "Unknown"), made("going", "True")}
	nodes[4].DeletionTimestamp = ptr.To(metav1.Now())
	if diff := cmp.Diff([]string{"ended", "removed"}, node.Strays(nodes, pods)); diff != "" {
		t.Errorf("other Nodes (-want +got):\n%s", diff)
	}
	s := &state.Machines{Config: &v1alpha1.KVMConfig{}, Workload: state.Workload{Nodes: nodes}}
	s.Leaving = pods
	outcome, err := node.New(nil, func(*state.Machines) node.Remover { return nil }).EnsureCreated(t.Context(), s)
	if err != nil || outcome.State != chain.StateDone || outcome.Reason != "NodesWithoutPods" || !strings.Contains(outcome.Message, "ended, removed;") {
		t.Errorf("err = %v, outcome %+v", err, outcome)
	}
}
