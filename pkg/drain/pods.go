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

// remaining are the pods that the machine is held for, by namespace and name, and those of them that are to be asked to go now.
// What belongs to the system is asked only when nothing else is left, for the others may need it to end in order.
func remaining(pods []corev1.Pod, now time.Time) (left, evict []corev1.Pod) {
	for _, p := range pods {
		if counts(p, now) {
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

func ofDaemonSet(p corev1.Pod) bool {
	owner := metav1.GetControllerOf(&p)
	return owner != nil && owner.Kind == "DaemonSet"
}
