package state_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestNodesAndTheirMachines: nodes and machines match by ID if machines have one, by position if the old API has none;
// lists of unequal length lead to fewer nodes and never to a panic.
func TestNodesAndTheirMachines(t *testing.T) {
	type ids = []v1alpha1.Node
	type machines = []v1alpha1.Machine
	for name, test := range map[string]struct {
		ids      ids
		machines machines
		want     []string
	}{
		"by position":              {ids{{ID: "a"}, {ID: "b"}}, machines{{CPUs: 1}, {CPUs: 2}}, []string{"worker a 1", "worker b 2"}},
		"by id":                    {ids{{ID: "a"}, {ID: "b"}}, machines{{ID: "b", CPUs: 2}, {ID: "a", CPUs: 1}}, []string{"worker a 1", "worker b 2"}},
		"a machine too few":        {ids{{ID: "a"}, {ID: "b"}}, machines{{CPUs: 1}}, []string{"worker a 1"}},
		"a machine too many":       {ids{{ID: "a"}}, machines{{CPUs: 1}, {CPUs: 2}}, []string{"worker a 1"}},
		"a machine without a node": {ids{{ID: "a"}}, machines{{ID: "x", CPUs: 1}}, nil},
		"no machines":              {ids{{ID: "a"}}, nil, nil},
		"nodes keep their way":     {ids{{ID: "b"}, {ID: "a"}}, machines{{ID: "a", CPUs: 1}, {ID: "b", CPUs: 2}}, []string{"worker b 2", "worker a 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.KVMConfigSpec{Cluster: v1alpha1.Cluster{Workers: test.ids}, KVM: v1alpha1.KVM{Workers: test.machines}}
			var got []string
			for _, n := range state.NewNodes(spec) {
				got = append(got, fmt.Sprintf("%s %s %d", n.Role, n.ID, n.Machine.CPUs))
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("other nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhoMustWait: an outdated node waits until it is its turn; nothing of it may change until then.
func TestWhoMustWait(t *testing.T) {
	s := &state.Cluster{Rollout: rolling.Decision{Replace: map[string]bool{"a": true}}}
	for name, test := range map[string]struct {
		node state.Node
		want bool
	}{
		"up to date":                {state.Node{ID: "b", Hash: "1", Deployment: made("1")}, false},
		"outdated, its turn":        {state.Node{ID: "a", Hash: "2", Deployment: made("1")}, false},
		"outdated, not its turn":    {state.Node{ID: "b", Hash: "2", Deployment: made("1")}, true},
		"not made yet":              {state.Node{ID: "b", Hash: "2"}, false},
		"its hash is not known":     {state.Node{ID: "b", Deployment: made("1")}, true},
		"made by the original once": {state.Node{ID: "b", Hash: "2", Deployment: made("")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.MustWait(test.node); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestDefaultsAreDerived: defaults are derived from the API domain and the service network; the argument does not
// change.
func TestDefaultsAreDerived(t *testing.T) {
	config := &v1alpha1.KVMConfig{}
	config.Spec.Cluster.Kubernetes.API.Domain = "api.x.example.org"
	config.Spec.Cluster.Kubernetes.API.ClusterIPRange = "172.31.0.0/16"
	before := config.DeepCopy()
	c := state.WithDefaults(config).Spec.Cluster
	got := []string{c.Kubernetes.DNS.IP, c.Etcd.Domain, c.Kubernetes.Kubelet.Domain}
	if diff := cmp.Diff([]string{"172.31.0.10", "etcd.x.example.org", "worker.x.example.org"}, got); diff != "" {
		t.Errorf("other defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, config); diff != "" {
		t.Errorf("the object was changed (-before +after):\n%s", diff)
	}
}
