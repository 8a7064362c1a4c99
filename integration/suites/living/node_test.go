package living_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// join creates the Node of a pod, as its kubelet does, and makes it Ready.
func (l *living) join(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	must(t, l.Client.Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}))
	l.report(t, pod, ready())
}

// leave deletes the Node of a pod.
func (l *living) leave(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	must(t, l.Client.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}))
}

// report sets the condition that the kubelet of a pod's machine reports.
func (l *living) report(t testing.TB, pod *corev1.Pod, condition corev1.NodeCondition) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	must(t, l.Client.Get(context.Background(), client.ObjectKeyFromObject(node), node))
	before := node.DeepCopy()
	condition.LastHeartbeatTime = metav1.NewTime(time.Now())
	node.Status.Conditions = []corev1.NodeCondition{condition}
	must(t, l.Client.Status().Patch(context.Background(), node, client.MergeFrom(before)))
}

func ready() corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
}

func unwell() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "container runtime is down",
	}
}

// gate returns the readiness gate of a pod.
func gate(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return pod.Status.Conditions[i]
}
