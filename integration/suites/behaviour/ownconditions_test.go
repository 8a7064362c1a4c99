package behaviour_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// TestTheDeleterRemovesItsCondition: when it has nothing to report, its condition goes, also one of another field owner,
// and the cluster is Ready.
func TestTheDeleterRemovesItsCondition(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("own1").Obj())
	engine := apply.New(theLab.Client, theLab.Client, clock.RealClock{})
	pruned := metav1.Condition{
		Type: state.ConditionNodesPruned, Status: metav1.ConditionFalse, Reason: "Retrying", Message: "node: delete Node w: refused",
		LastTransitionTime: metav1.NewTime(time.Now()),
	}
	for _, owner := range []string{"a-test", key.Operator + "-deleter"} {
		if err := engine.SetConditionsAs(t.Context(), owner, config, pruned); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, lab.Timeout, func() error {
			if have := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, state.ConditionNodesPruned); have != nil {
				return fmt.Errorf("the condition of %s is still there: %+v", owner, have)
			}
			return nil
		})
		theLab.AwaitReady(t, config)
	}
}
