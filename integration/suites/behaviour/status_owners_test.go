package behaviour_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

// TestConditionsHaveOneFieldOwner: each condition belongs to the controller that applies it, and what a user writes to
// the status, as one who restores a backup does, goes away.
func TestConditionsHaveOneFieldOwner(t *testing.T) {
	t.Parallel()
	config := createReady(t, fixture.MakeCluster("fld1").Label(shard, shared).Workers(1).Obj())
	current := theLab.Current(t, config)
	owners := conditionOwners(t, current)
	for _, c := range current.Status.Conditions {
		if got := owners[c.Type]; !slices.Equal(got, []string{key.Operator + "-" + cluster.Name + " by " + string(metav1.ManagedFieldsOperationApply)}) {
			t.Errorf("condition %s has the field owners %v, want the controller %s alone", c.Type, got, cluster.Name)
		}
	}
	forged := current.DeepCopy()
	forged.Status.Nodes = append(forged.Status.Nodes, v1alpha1.NodeStatus{ID: "forged", Role: "worker", Phase: "Ready"})
	forged.Status.MinoritySince = new(metav1.Now())
	meta.SetStatusCondition(&forged.Status.Conditions, metav1.Condition{Type: "Forged", Status: metav1.ConditionTrue, Reason: "Forged"})
	if err := theLab.Client.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		got := theLab.Current(t, config).Status
		if len(got.Nodes) != 2 || got.MinoritySince != nil || meta.FindStatusCondition(got.Conditions, "Forged") != nil {
			return fmt.Errorf("the status still has what a user wrote: %+v", got)
		}
		return nil
	})
}

// TestAStatusOfAnotherClientIsTakenOver: a client, such as one that restores a backup, owns fields of nodes and conditions
// that the operator changes and removes later.
func TestAStatusOfAnotherClientIsTakenOver(t *testing.T) {
	t.Parallel()
	config := fixture.MakeCluster("fld2").Label(shard, "none").Workers(2).Obj()
	create(t, config)
	restored := theLab.Current(t, config)
	restored.Status.Nodes = []v1alpha1.NodeStatus{{ID: "w1aaa", Role: key.RoleWorker, Phase: "Pending"}}
	for _, name := range []string{"Reconciling", state.ConditionNodesPruned} {
		meta.SetStatusCondition(&restored.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Restored", Message: "from a backup"})
	}
	if err := theLab.Client.Status().Update(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Labels[shard] = shared })
	theLab.AwaitReady(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers, c.Spec.KVM.Workers = c.Spec.Cluster.Workers[:1], c.Spec.KVM.Workers[:1]
	})
	lab.Eventually(t, lab.Timeout, func() error {
		for _, n := range theLab.Current(t, config).Status.Nodes {
			if n.ID == "w1aaa" {
				return fmt.Errorf("the status still has %+v", n)
			}
		}
		return nil
	})
	theLab.AwaitReady(t, config)
	if pruned := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, state.ConditionNodesPruned); pruned != nil {
		t.Errorf("the status still has %+v", pruned)
	}
}

// conditionOwners returns, by the type of each condition, which field owners it has, and how they wrote it.
func conditionOwners(t *testing.T, config *v1alpha1.KVMConfig) map[string][]string {
	t.Helper()
	owners := map[string][]string{}
	for _, entry := range config.ManagedFields {
		var fields struct {
			Status struct {
				Conditions map[string]any `json:"f:conditions"`
			} `json:"f:status"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		for name := range maps.Keys(fields.Status.Conditions) {
			var id struct{ Type string }
			if len(name) > 2 && json.Unmarshal([]byte(name[2:]), &id) == nil {
				owners[id.Type] = append(owners[id.Type], entry.Manager+" by "+string(entry.Operation))
			}
		}
	}
	return owners
}
