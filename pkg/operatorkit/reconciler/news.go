package reconciler

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// News passes over updates of an object that change nothing but its version and the messages of conditions that its
// controller writes. Others choose words in some messages, such as webhooks: with other words each time, each write of the
// status would cause the pass that writes the next one.
type News struct {
	predicate.Funcs

	// Conditions returns the conditions of an object.
	Conditions func(client.Object) []metav1.Condition
	// Foreign returns whether another controller writes the conditions of a type; nil if none does.
	Foreign func(conditionType string) bool
}

// Update implements predicate.Predicate.
func (n News) Update(e event.UpdateEvent) bool {
	if e.ObjectOld == nil || e.ObjectNew == nil || e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() {
		return true
	}
	return !equality.Semantic.DeepEqual(n.withoutWords(e.ObjectOld), n.withoutWords(e.ObjectNew))
}

// withoutWords returns a copy of an object without its version and the messages.
func (n News) withoutWords(object client.Object) client.Object {
	rest := object.DeepCopyObject().(client.Object)
	rest.SetResourceVersion("")
	rest.SetManagedFields(nil)
	conditions := n.Conditions(rest)
	for i := range conditions {
		if n.Foreign == nil || !n.Foreign(conditions[i].Type) {
			conditions[i].Message = ""
		}
	}
	return rest
}
