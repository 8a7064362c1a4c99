package reconciler

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestWordsOfConditionsAreNoNews: a pass that they cause could write others.
func TestWordsOfConditionsAreNoNews(t *testing.T) {
	object := func(change func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "2"}}
		b.Status.Conditions = []metav1.Condition{{Type: "Own", Reason: "A", Message: "1"}, {Type: "Theirs", Reason: "A", Message: "1"}}
		change(b)
		return b
	}
	before := object(func(b *policyv1.PodDisruptionBudget) { b.ResourceVersion = "1" })
	news := News{
		Conditions: func(o client.Object) []metav1.Condition { return o.(*policyv1.PodDisruptionBudget).Status.Conditions },
		Foreign:    func(kind string) bool { return kind == "Theirs" },
	}
	for name, test := range map[string]struct {
		after client.Object
		want  bool
	}{
		"words of the controller":         {object(func(b *policyv1.PodDisruptionBudget) { b.Status.Conditions[0].Message = "2" }), false},
		"a field manager":                 {object(func(b *policyv1.PodDisruptionBudget) { b.ManagedFields = []metav1.ManagedFieldsEntry{{}} }), false},
		"words of another controller":     {object(func(b *policyv1.PodDisruptionBudget) { b.Status.Conditions[1].Message = "2" }), true},
		"another reason":                  {object(func(b *policyv1.PodDisruptionBudget) { b.Status.Conditions[0].Reason = "B" }), true},
		"one condition less":              {object(func(b *policyv1.PodDisruptionBudget) { b.Status.Conditions = b.Status.Conditions[:1] }), true},
		"another value in the status":     {object(func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 1 }), true},
		"an annotation":                   {object(func(b *policyv1.PodDisruptionBudget) { b.Annotations = map[string]string{"a": "b"} }), true},
		"the same version, at a new look": {before, true},
		"an object that is being deleted": {object(func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp = &metav1.Time{} }), true},
	} {
		if got := news.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: it passes: %t", name, got)
		}
	}
	if before.Status.Conditions[0].Message != "1" || before.ResourceVersion != "1" {
		t.Error("the object of the cache was changed")
	}
}
