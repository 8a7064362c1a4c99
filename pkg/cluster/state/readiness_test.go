package state_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

var now = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// made returns a Deployment whose template has the hash.
func made(hash string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Spec.Template.Annotations = map[string]string{key.AnnotationNodeHash: hash}
	return d
}

// pod returns a Ready pod with the hash, after changes.
func pod(name, hash string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key.AnnotationNodeHash: hash}, CreationTimestamp: now}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func notReady(p *corev1.Pod)    { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func ended(p *corev1.Pod)       { p.Status.Phase = corev1.PodFailed }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &now }

func with(conditions ...corev1.PodCondition) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, conditions...) }
}

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "k8s-kvm", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

// TestReadinessOfNodes: a node is Ready if it has exactly one pod, which is Ready and has the current template of the
// Deployment.
func TestReadinessOfNodes(t *testing.T) {
	unscheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}
	gate := corev1.PodCondition{Type: key.ConditionNodeReady, Status: corev1.ConditionFalse}
	for name, test := range map[string]struct {
		node state.Node
		want string
	}{
		"it serves":                  {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1")}}, ""},
		"there is no Deployment":     {state.Node{}, "no node pod yet"},
		"a pod without a Deployment": {state.Node{Pods: []corev1.Pod{pod("a", "1")}}, "no node pod yet"},
		"there is no pod":            {state.Node{Deployment: made("1")}, "no node pod yet"},
		"a kubelet has ended the pod before": {
			state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("b", "1"), pod("a", "1", ended)}}, "",
		},
		"a kubelet has ended the only pod": {
			state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, ended)}}, "node pod a is not Ready",
		},
		"the pod terminates":         {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", terminating)}}, "node pod a is terminating"},
		"the pod is of the old form": {state.Node{Deployment: made("2"), Pods: []corev1.Pod{pod("a", "1")}}, "node pod a is about to be replaced"},
		"the old pod still ends": {
			state.Node{Deployment: made("2"), Pods: []corev1.Pod{pod("b", "2"), pod("a", "1", terminating)}}, "the old node pod is still terminating",
		},
		"two pods of the same form": {
			state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1"), pod("b", "1", terminating)}}, "the old node pod is still terminating",
		},
		"the pod is not Ready":     {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady)}}, "node pod a is not Ready"},
		"no host takes it":         {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, with(unscheduled))}}, "node pod a is not Ready: unschedulable: 0/3 nodes are available"},
		"its image cannot be had":  {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, waits("ImagePullBackOff"))}}, "node pod a is not Ready: its container k8s-kvm is waiting: ImagePullBackOff"},
		"its image is got":         {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, waits("PodInitializing"))}}, "node pod a is not Ready"},
		"its container is made":    {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, waits("ContainerCreating"))}}, "node pod a is not Ready"},
		"its Node is not Ready":    {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", notReady, with(gate))}}, "node pod a is not Ready: its Node in the workload cluster is not Ready"},
		"a pod without conditions": {state.Node{Deployment: made("1"), Pods: []corev1.Pod{pod("a", "1", func(p *corev1.Pod) { p.Status.Conditions = nil })}}, "node pod a is not Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			ready, message := state.PodReadiness(test.node)
			if diff := cmp.Diff([]any{test.want == "", test.want}, []any{ready, message}); diff != "" {
				t.Errorf("it is judged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsOfANodeNewestFirst: pods come newest first, and Pod is the newest that stays.
func TestPodsOfANodeNewestFirst(t *testing.T) {
	of := func(role, node, name string, age time.Duration, changes ...func(*corev1.Pod)) corev1.Pod {
		p := pod(name, "1", changes...)
		p.Labels = map[string]string{key.LabelApp: role, key.LabelNode: node}
		p.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return p
	}
	pods := []corev1.Pod{
		of("worker", "a", "oldest", 3*time.Hour), of("worker", "b", "another node's", 0), of("worker", "a", "newest", time.Hour, terminating),
		of("master", "a", "a master's", 0), of("worker", "a", "middle", 2*time.Hour), of("worker", "a", "middle too", 2*time.Hour),
	}
	n := state.Node{ID: "a", Role: "worker"}
	n.Pods = state.PodsOf(pods, n)
	var got []string
	for _, p := range n.Pods {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"newest", "middle", "middle too", "oldest"}, got); diff != "" {
		t.Errorf("another order (-want +got):\n%s", diff)
	}
	onlyGoing := state.Node{Pods: n.Pods[:1]}
	if diff := cmp.Diff([]string{"middle", "newest"}, []string{n.Pod().Name, onlyGoing.Pod().Name}); diff != "" {
		t.Errorf("another pod counts (-want +got):\n%s", diff)
	}
	if none := (state.Node{}).Pod(); none != nil {
		t.Errorf("a pod out of nothing: %v", none)
	}
}
