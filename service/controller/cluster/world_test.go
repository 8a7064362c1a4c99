package cluster

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/deployment"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// planner is shared because rendering takes most of these tests' time.
var planner = plan.NewPlanner()

// world is what a test lets the operator observe.
type world = plan.Observed

// snapshot returns what a reconcile knows if the world is w; indexes are assigned.
func (s scenario) snapshot(t *testing.T, w world) *state.Cluster {
	t.Helper()
	config := s.config.DeepCopy()
	var ids []string
	for _, n := range state.NewNodes(config.Spec) {
		ids = append(ids, n.ID)
	}
	if config.Status.KVM == nil {
		config.Status.KVM = &v1alpha1.LegacyKVMStatus{}
	}
	config.Status.KVM.NodeIndexes = key.AssignIndexes(config.Status.KVM.NodeIndexes, ids)
	w.Config, w.Settings, w.Rendering = config, s.settings, true
	w.Release, w.Secrets, w.Volumes = s.inputs.Release, s.inputs.Secrets, s.inputs.Volumes
	if w.Hold == "" {
		w.Hold = state.HoldOf(&w.Namespace, config, nil)
	}
	return planner.Plan(w, now)
}

// running returns the world in which every node of the scenario is Ready and up to date.
func (s scenario) running(t *testing.T) world {
	t.Helper()
	first := s.snapshot(t, world{})
	w := world{Objects: state.Objects{Deployments: map[string]*appsv1.Deployment{}}}
	desired, err := deployment.New().Build(first)
	if err != nil {
		t.Fatal(err)
	}
	for i, object := range desired.Objects {
		d := object.(*appsv1.Deployment)
		apply.SetOwner(d, first.Owner("deployment"))
		w.Deployments[d.Name] = d
		w.Pods = append(w.Pods, podOf(d, fmt.Sprintf("10.244.0.%d", i+1)))
	}
	return w
}

// podOf returns a Ready node pod of the Deployment.
func podOf(d *appsv1.Deployment, ip string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-574dd54b85-x2x2x", Namespace: d.Namespace, UID: types.UID(d.Name + "-uid"), CreationTimestamp: metav1.NewTime(now),
			Labels: d.Spec.Template.Labels, Annotations: d.Spec.Template.Annotations,
		},
		Spec: corev1.PodSpec{NodeName: "host-" + d.Name},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: nodestep.Container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}

// notReady makes a pod not Ready.
func notReady(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

// terminating marks a pod as being deleted.
func terminating(pod *corev1.Pod) {
	at := metav1.NewTime(now)
	pod.DeletionTimestamp = &at
}

// build returns the objects that a handler builds from a snapshot.
func build(t *testing.T, s *state.Cluster, handler string) (apply.Desired, error) {
	t.Helper()
	for _, resource := range renderable() {
		if resource.Handler == handler {
			return resource.Build(s)
		}
	}
	t.Fatalf("there is no handler %s", handler)
	return apply.Desired{}, nil
}

// condition returns the condition of a handler's error as "<status> <reason>: <message>".
func condition(handler string, err error) string {
	result := chain.Result{Handler: handler, Err: err, Outcome: chain.Done()}
	c := result.Condition("")
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// names returns the names of objects.
func names[T metav1.Object](objects []T) []string {
	var list []string
	for _, object := range objects {
		list = append(list, object.GetName())
	}
	return list
}
