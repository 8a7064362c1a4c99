package observe_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
)

// TestWhichUpdatesOfAKVMConfigPass: a controller does not run again for a status that another controller
// writes, and runs again when its own condition changes.
func TestWhichUpdatesOfAKVMConfigPass(t *testing.T) {
	condition := func(name string, status metav1.ConditionStatus) func(*v1alpha1.KVMConfig) {
		return func(c *v1alpha1.KVMConfig) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: name, Status: status})
		}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.KVMConfig)
		want   bool
	}{
		"nothing":                          {func(*v1alpha1.KVMConfig) {}, false},
		"the version":                      {func(c *v1alpha1.KVMConfig) { c.ResourceVersion = "2" }, false},
		"the status of its nodes":          {func(c *v1alpha1.KVMConfig) { c.Status.Nodes = []v1alpha1.NodeStatus{{ID: "w1"}} }, false},
		"the condition of another":         {condition("Ready", metav1.ConditionFalse), false},
		"the controller's own condition":   {condition("NodesPruned", metav1.ConditionFalse), true},
		"the spec":                         {func(c *v1alpha1.KVMConfig) { c.Generation = 2 }, true},
		"the annotation that pauses":       {func(c *v1alpha1.KVMConfig) { c.Annotations = map[string]string{"a": "b"} }, true},
		"the label of the operator":        {func(c *v1alpha1.KVMConfig) { c.Labels = map[string]string{"a": "b"} }, true},
		"the finalizers":                   {func(c *v1alpha1.KVMConfig) { c.Finalizers = []string{"a"} }, true},
		"the deletion":                     {func(c *v1alpha1.KVMConfig) { c.DeletionTimestamp = &metav1.Time{} }, true},
		"the managed fields of its status": {func(c *v1alpha1.KVMConfig) { c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a"}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := &v1alpha1.KVMConfig{}, &v1alpha1.KVMConfig{}
			test.change(after)
			for _, e := range []event.UpdateEvent{{ObjectOld: before, ObjectNew: after}, {ObjectOld: after, ObjectNew: before}} {
				if got := observe.Spec("NodesPruned").Update(e); got != test.want {
					t.Errorf("it passes: %t, want %t", got, test.want)
				}
			}
		})
	}
}
