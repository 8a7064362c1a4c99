package drain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
)

// overdue is how long a pod is still waited for after the end of its grace period: after that its kubelet is assumed
// not to respond.
const overdue = time.Minute

// silentKubelet is how long an evicted pod is waited for on a Node whose kubelet does not respond, regardless of its
// grace period, because nothing there can end it. Cluster API waits as long
// (https://github.com/kubernetes-sigs/cluster-api/blob/main/internal/controllers/machine/machine_controller.go,
// SkipWaitForDeleteTimeoutSeconds).
const silentKubelet = 5 * time.Minute

// remaining returns the pods that the machine is held for, by namespace and name, and those of them that are to be
// evicted now. System pods are evicted only when no others are left, because the others may need them to end in order.
func remaining(node *corev1.Node, pods []corev1.Pod, now time.Time) (left, evict []corev1.Pod) {
	since, silent := silentSince(node)
	for _, p := range pods {
		if counts(p, now) && (!silent || !abandoned(p, since, now)) {
			left = append(left, p)
		}
	}
	slices.SortFunc(left, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	users := slices.ContainsFunc(left, func(p corev1.Pod) bool { return !system(p) })
	for _, p := range left {
		if p.DeletionTimestamp == nil && system(p) != users {
			evict = append(evict, p)
		}
	}
	return left, evict
}

func system(p corev1.Pod) bool { return p.Namespace == metav1.NamespaceSystem }

// counts returns whether a pod is waited for. Pods without a controller and pods with local data count like any others:
// they are evicted while they can end in order, because the machine does not wait for them without a limit.
func counts(p corev1.Pod, now time.Time) bool {
	switch {
	case joining.Ended(&p):
		return false
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return false // it belongs to the kubelet and ends with it
	case ofDaemonSet(p):
		return false // its controller would create it again at once
	case p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > overdue:
		return false
	}
	return true
}

// abandoned returns whether a pod was evicted or deleted, and whether its kubelet, which has not responded since a
// time, has been unable to end it for some time.
func abandoned(p corev1.Pod, since, now time.Time) bool {
	if p.DeletionTimestamp == nil {
		return false
	}
	asked := p.DeletionTimestamp.Time
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		// The deletion timestamp is when the grace period ends.
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return now.Sub(asked) > silentKubelet && now.Sub(since) > silentKubelet
}

// silentSince returns since when the kubelet of a Node has not responded. A kubelet that reports its Node as not Ready
// still ends pods.
func silentSince(node *corev1.Node) (time.Time, bool) {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionUnknown
		}
	}
	return time.Time{}, false
}

func ofDaemonSet(p corev1.Pod) bool {
	owner := metav1.GetControllerOf(&p)
	return owner != nil && owner.Kind == "DaemonSet"
}
