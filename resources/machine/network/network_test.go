package network_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/network"
)

// state returns a Machine on the network lan; nc may be nil.
func state(template string, nc *v1alpha1.NetworkConfiguration) *vitistack.State {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	m.Spec = v1alpha1.MachineSpec{Template: template, Networks: []v1alpha1.Network{{Name: "eth0", NetworkName: "lan"}}}
	networks := map[string]*v1alpha1.NetworkConfiguration{}
	if nc != nil {
		networks["lan"] = nc
	}
	return vitistack.Plan(vitistack.Observed{Machine: m, Networks: networks})
}

func lan(conditions ...metav1.Condition) *v1alpha1.NetworkConfiguration {
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "lan", Generation: 1}}
	nc.Spec.VLAN, nc.Status.Conditions = 7, conditions
	return nc
}

func ready(status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionAttachmentReady, Status: status, ObservedGeneration: 1, Message: "no Multus"}
}

// TestNetworks: the handler is concerned with networks only. What else is wrong is not its business.
func TestNetworks(t *testing.T) {
	done := chain.Outcome{State: chain.StateDone, Reason: v1alpha1.ReasonNetworkConfigured}
	for name, test := range map[string]struct {
		state   *vitistack.State
		want    chain.Outcome
		problem string
	}{
		"ready":                         {state("small", lan(ready("True"))), done, ""},
		"ready, and another problem":    {state("huge", lan(ready("True"))), done, ""},
		"not reconciled yet":            {state("small", lan()), chain.Wait(v1alpha1.ReasonPending, "waits for the NetworkAttachmentDefinition of NetworkConfiguration ci/lan", 0), ""},
		"failed":                        {state("small", lan(ready("False"))), chain.Outcome{}, v1alpha1.NetworkAttachmentFailed},
		"missing":                       {state("small", nil), chain.Outcome{}, v1alpha1.NetworkConfigurationNotFound},
		"missing, and a problem before": {state("huge", nil), chain.Outcome{}, v1alpha1.NetworkConfigurationNotFound},
	} {
		got, err := network.Handler{}.EnsureCreated(t.Context(), test.state)
		reason := ""
		if p, ok := problem.As(err); ok {
			reason = p.Reason
		}
		if diff := cmp.Diff([]any{test.want, test.problem, test.problem != ""}, []any{got, reason, err != nil}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDeletionWaitsForTheStatusOfNetworks that list the Machine, and for no more.
func TestDeletionWaitsForTheStatusOfNetworks(t *testing.T) {
	listed := lan()
	listed.Status.Attachments = []v1alpha1.Attachment{{Machine: "a", Interface: "eth0"}}
	for name, test := range map[string]struct {
		state *vitistack.State
		want  chain.Outcome
	}{
		"listed":     {state("huge", listed), chain.Wait(v1alpha1.ReasonTerminating, "waits until the Machine is no longer in the status of NetworkConfiguration ci/lan", 0)},
		"not listed": {state("huge", lan()), chain.Done()},
		"missing":    {state("huge", nil), chain.Done()},
	} {
		got, err := network.Handler{}.EnsureDeleted(t.Context(), test.state)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", name, err, diff)
		}
	}
}
