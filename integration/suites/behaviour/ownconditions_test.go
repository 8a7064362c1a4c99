package behaviour_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// TestConditionOfAnotherControllerCounts: the cluster controller keeps a condition that another field owner applies, and
// counts it for Ready. The deleter removes the one that it owns when it has nothing to tell.
func TestConditionOfAnotherControllerCounts(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("own1").Obj())
	engine := apply.New(theLab.Client, theLab.Client, clock.RealClock{})
	pruned := metav1.Condition{
		Type: state.ConditionNodesPruned, Status: metav1.ConditionFalse, Reason: "Retrying", Message: "node: delete Node w: refused",
		LastTransitionTime: metav1.NewTime(time.Now()),
	}
	counts := lab.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Retrying", Message: "delete Node w"}
	const stranger = "a-test"
	if err := engine.SetConditionsAs(t.Context(), stranger, config, pruned); err != nil {
		t.Fatal(err)
	}
	theLab.AwaitCondition(t, config, counts)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Drain = &v1alpha1.Drain{Timeout: &metav1.Duration{Duration: time.Hour}}
	})
	theLab.AwaitCondition(t, config, counts)
	if err := engine.SetConditionsAs(t.Context(), stranger, config); err != nil {
		t.Fatal(err)
	}
	theLab.AwaitReady(t, config)
	if err := engine.SetConditionsAs(t.Context(), key.Operator+"-deleter", config, pruned); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		if have := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, state.ConditionNodesPruned); have != nil {
			return fmt.Errorf("the condition is still there: %+v", have)
		}
		return nil
	})
	theLab.AwaitReady(t, config)
}
