package drain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

// overdue is how long after the end of its grace period a pod is still waited for: its kubelet does not answer then.
const overdue = time.Minute

// silentKubelet is how long a pod that was asked to go is waited for on a Node whose kubelet is silent, whatever its grace period: nothing there
// can end it. Cluster API waits as long
// (https://github.com/kubernetes-sigs/cluster-api/blob/main/internal/controllers/machine/machine_controller.go, SkipWaitForDeleteTimeoutSeconds).
const silentKubelet = 5 * time.Minute

// remaining are the pods that the machine is held for, by namespace and name, and those of them that are to be asked to go now.
// What belongs to the system is asked only when nothing else is left, for the others may need it to end in order.
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

// counts says whether a pod is waited for. Pods without a controller and pods with local data count as any other: they are
// asked to go while they can end in order, for the machine will not wait for them for ever.
func counts(p corev1.Pod, now time.Time) bool {
	switch {
	case joining.Ended(&p):
		return false
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return false // it is the kubelet's own and ends with it
	case ofDaemonSet(p):
		return false // it would be made anew at once
	case p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > overdue:
		return false
	}
	return true
}

// abandoned says that a pod was asked to go, and that its kubelet, which is silent since a time, has not been there to end it for a while.
func abandoned(p corev1.Pod, since, now time.Time) bool {
	if p.DeletionTimestamp == nil {
		return false
	}
	asked := p.DeletionTimestamp.Time
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		// The API server writes down when the grace period ends.
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return now.Sub(asked) > silentKubelet && now.Sub(since) > silentKubelet
}

// silentSince is since when the kubelet of a Node has not been heard of. One that says that its Node is not Ready still ends pods.
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
