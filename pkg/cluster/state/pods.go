package state

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Readiness returns whether a node is Ready and up to date with its Deployment and, if not, what it waits for. It
// separates the rollout from the way in which readiness is observed: PodReadiness checks node pods only, and the caller
// may check Nodes too.
type Readiness func(n Node) (ready bool, message string)

// PodReadiness checks a node by its pods: there is exactly one, it is Ready, and it has the Deployment's current
// template.
func PodReadiness(n Node) (bool, string) {
	if n.Deployment == nil {
		return false, "no node pod yet"
	}
	want := n.Deployment.Spec.Template.Annotations[key.AnnotationNodeHash]
	pod := n.Pod()
	switch {
	case pod == nil:
		return false, "no node pod yet"
	case pod.DeletionTimestamp != nil:
		return false, "node pod " + pod.Name + " is terminating"
	case pod.Annotations[key.AnnotationNodeHash] != want:
		return false, "node pod " + pod.Name + " is about to be replaced"
	case len(n.RunningPods()) > 1:
		return false, "the old node pod is still terminating"
	case !PodReady(pod):
		return false, "node pod " + pod.Name + " is not Ready" + because(pod)
	}
	return true, ""
}

// RunningPods returns the pods of a node that have not ended, or all if each has ended: a pod that a kubelet has ended
// because its host shuts down stays until it is deleted.
func (n Node) RunningPods() []corev1.Pod {
	standing := slices.DeleteFunc(slices.Clone(n.Pods), func(p corev1.Pod) bool { return !alive(p) })
	if len(standing) == 0 {
		return n.Pods
	}
	return standing
}

// PodReady returns whether the pod's condition Ready is true.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// because returns why a pod is not Ready, as far as its status says.
func because(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ": unschedulable: " + c.Message
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason) {
			return ": its container " + c.Name + " is waiting: " + w.Reason
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionNodeReady && c.Status != corev1.ConditionTrue {
			return ": its Node in the workload cluster is not Ready"
		}
	}
	return ""
}

// Messages about nodes that are no longer in the spec: nodes that are removed, masters that stay until etcd is founded,
// and masters that stay until their member is removed.
const (
	MessageLeaving  = "it was removed from the spec"
	MessageHeld     = MessageLeaving + " and is kept until etcd is founded"
	MessageRetiring = MessageLeaving + " and is kept until its member of etcd is removed"
)

// RemovedPods returns the pods of nodes that are no longer in the spec, except for masters that retire, sorted by name.
func (s *Cluster) RemovedPods() []corev1.Pod {
	pods := slices.DeleteFunc(slices.Clone(s.Leaving), func(p corev1.Pod) bool {
		id := p.Labels[key.LabelNode]
		retires := p.Labels[key.LabelApp] == key.RoleMaster && slices.ContainsFunc(s.Retiring, func(n Node) bool { return n.ID == id })
		return id == "" || retires
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// WhyHeld returns a message with what holds the pods that are being deleted; empty if none is held.
func WhyHeld(pods ...corev1.Pod) string {
	var reasons []string
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if p.DeletionTimestamp != nil && c.Type == key.ConditionDrained {
				reasons = append(reasons, held(p.Name, c))
			}
		}
	}
	return Sentence(reasons...)
}

// held describes a node pod with the condition drained.
func held(pod string, drained corev1.PodCondition) string {
	doing := "drained"
	if drained.Status == corev1.ConditionTrue {
		doing = "shut down"
	}
	return fmt.Sprintf("node pod %s is being %s (%s): %s", pod, doing, drained.Reason, drained.Message)
}

// Sentence joins the parts of a message that are not empty.
func Sentence(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// PodsOf returns the pods of one node, newest first.
func PodsOf(pods []corev1.Pod, n Node) []corev1.Pod {
	var own []corev1.Pod
	for _, pod := range pods {
		if pod.Labels[key.LabelNode] == n.ID && pod.Labels[key.LabelApp] == n.Role {
			own = append(own, pod)
		}
	}
	slices.SortFunc(own, func(a, b corev1.Pod) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return own
}
