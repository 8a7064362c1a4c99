package plan

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// healthy returns healthy members of etcd on masters.
func healthy(s *state.Cluster, ids ...string) []etcd.Member {
	var all []etcd.Member
	for i, id := range ids {
		m := s.EtcdMaster(id)
		all = append(all, etcd.Member{ID: uint64(i + 1), Name: m.Name, PeerURL: m.PeerURL, Started: true, Healthy: true})
	}
	return all
}

// TestMasterIsReadyWithItsMember: the next master is not replaced before.
func TestMasterIsReadyWithItsMember(t *testing.T) {
	s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Masters(2).Obj()}
	n := state.Node{ID: "m0aaa", Role: key.RoleMaster}
	change := func(f func(*etcd.Member)) []etcd.Member {
		all := healthy(s, "m0aaa", "m1aaa")
		f(&all[0])
		return all
	}
	for name, test := range map[string]struct {
		members []etcd.Member
		want    string
	}{
		"unknown":       {nil, ""},
		"well":          {healthy(s, "m0aaa"), ""},
		"none":          {healthy(s, "m1aaa"), "it has no member of etcd yet"},
		"without vote":  {change(func(m *etcd.Member) { m.Learner = true }), "its member of etcd has no vote yet"},
		"does not talk": {change(func(m *etcd.Member) { m.Healthy = false }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.Etcd = etcd.State{Members: test.members}
			if got := memberTrouble(s, n); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := memberTrouble(s, state.Node{ID: "w", Role: key.RoleWorker}); got != "" {
				t.Errorf("a worker: %q", got)
			}
		})
	}
}

// TestMasterThatIsNeverAddedIsReported covers an operator that only creates machines, and a master that has to join
// others: the message says what is missing.
func TestMasterThatIsNeverAddedIsReported(t *testing.T) {
	joins := state.Node{ID: "m2", Role: key.RoleMaster}
	s := &state.Cluster{Config: &v1alpha1.KVMConfig{}, Founders: []string{"m1"}, Nodes: []state.Node{
		{ID: "m1", Role: key.RoleMaster, Deployment: &appsv1.Deployment{}}, joins,
	}}
	NewPlanner().readiness(s, &joins, false, nil)
	if want := "service.workload.connect"; joins.Ready || !strings.Contains(joins.Message, want) {
		t.Errorf("ready %t, and it waits because %q, want something with %q", joins.Ready, joins.Message, want)
	}
}
