package drainer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// news passes over updates of pods that change nothing but the message of the operator's own condition. Webhooks of the
// workload cluster choose words in it: if each eviction is refused with other words, each report would cause the next
// evictions at once.
type news struct{ predicate.Funcs }

// Update implements predicate.Predicate.
func (news) Update(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*corev1.Pod)
	after, is := e.ObjectNew.(*corev1.Pod)
	if !was || !is || before.ResourceVersion == after.ResourceVersion {
		return true
	}
	return !equality.Semantic.DeepEqual(withoutWords(before), withoutWords(after))
}

// withoutWords returns a copy of a pod without its version and the message of the operator's condition.
func withoutWords(pod *corev1.Pod) *corev1.Pod {
	rest := pod.DeepCopy()
	rest.ResourceVersion, rest.ManagedFields = "", nil
	for i := range rest.Status.Conditions {
		if c := &rest.Status.Conditions[i]; c.Type == key.ConditionDrained {
			c.Message = ""
		}
	}
	return rest
}
