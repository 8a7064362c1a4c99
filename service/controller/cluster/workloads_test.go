package cluster

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestVotesOfClustersThatWereNotQueried: an operator that has just started does not release masters because of what
// it does not know yet.
func TestVotesOfClustersThatWereNotQueried(t *testing.T) {
	name := types.NamespacedName{Namespace: "default", Name: "ab1cd"}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	m := NewMembers(func(types.NamespacedName) {}, nil)
	for _, step := range []struct {
		what  string
		do    func()
		vote  etcd.Vote
		asked bool
	}{
		{"before the first look", func() {}, etcd.VoteAwaited, false},
		{"when they are observed", func() { m.want(name, etcd.Access{}, nil) }, etcd.VoteAwaited, false},
		{"when they are left as they are", func() { m.unmanage(name) }, etcd.VoteUnknown, true},
		{"when they are observed again", func() { m.want(name, etcd.Access{}, nil) }, etcd.VoteAwaited, false},
		{"when the cluster is gone", func() { m.forget(name) }, etcd.VoteAwaited, false},
	} {
		step.do()
		vote, _ := m.Vote(name, "etcd-m1")
		if asked := m.Ask(over, name); vote != step.vote || asked != step.asked {
			t.Errorf("%s: the vote is %d, want %d; they were asked: %t, want %t", step.what, vote, step.vote, asked, step.asked)
		}
	}
}

// TestSilenceWithoutAnAddressCounts: an operator that starts when all masters of a cluster are gone has to measure for
// how long the API has not responded.
func TestSilenceWithoutAnAddressCounts(t *testing.T) {
	w := NewWorkloads(nil, nil, nil)
	pair := pki.KeyPair{CA: []byte("a"), Certificate: []byte("c"), Key: []byte("k")}
	pairs := pki.Set{pki.API: pair, pki.Operator: pair}
	s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj(), Certificates: pairs}
	w.follow(s)
	if got := w.Seen(nameOf(s)); got.Connected || got.Reason != "NoMaster" {
		t.Errorf("the cluster is %+v, want NoMaster", got)
	}
	if seen := w.Pool.Get(nameOf(s)); seen == nil || seen.Silent() == 0 {
		t.Error("its silence does not count")
	}
}

// TestWhoIsNotReached: the operator does not connect with a certificate that is not stored, because each pass may issue
// another one, and it does not connect to machines of another cluster with the same ID.
func TestWhoIsNotReached(t *testing.T) {
	pair := pki.KeyPair{CA: []byte("a"), Certificate: []byte("c"), Key: []byte("k")}
	pairs := pki.Set{pki.API: pair, pki.EtcdClient: pair}
	for name, test := range map[string]struct {
		stored pki.Set
		taken  bool
		reason string
	}{
		"nothing is stored":                      {nil, false, "NoCertificate"},
		"the namespace belongs to another owner": {pairs, true, "OwnedByOther"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorkloads(nil, nil, nil)
			w.EtcdAddresses = func(*state.Cluster) func(*corev1.Pod) string {
				return func(*corev1.Pod) string { return "127.0.0.1:1" }
			}
			config := fixture.MakeCluster("ab1cd").Obj()
			s := &state.Cluster{Config: config, Nodes: state.NewNodes(config.Spec), Certificates: test.stored, Addresses: []string{"127.0.0.1:1"}, NamespaceTaken: test.taken}
			w.follow(s)
			keeper, _ := w.Members.of(nameOf(s))
			vote, _ := w.Members.Vote(nameOf(s), "etcd-m0aaa")
			if members := w.Members.State(nameOf(s)); len(members.Members) > 0 || keeper != nil || vote != etcd.VoteUnknown {
				t.Errorf("members of etcd are managed: %+v", members)
			}
			if got := w.Seen(nameOf(s)); got.Connected || got.Reason != test.reason || w.Pool.Get(nameOf(s)) != nil {
				t.Errorf("the cluster is reached: %+v, want %s", got, test.reason)
			}
		})
	}
}
