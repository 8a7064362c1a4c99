package endpoints

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// TestWhoAnswersForTheAPI covers masters that have left the spec and are part of etcd yet, with which the API goes on when no other is there, and
// those whose own member of etcd is of no use.
func TestWhoAnswersForTheAPI(t *testing.T) {
	master := func(address string, ready corev1.ConditionStatus) cluster.Node {
		return cluster.Node{ID: address, Role: key.RoleMaster, Pods: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "master-" + address},
			Status:     corev1.PodStatus{PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}}}
	}
	one, two, ill, alsoIll := master("10.0.0.1", "True"), master("10.0.0.2", "True"), master("10.0.0.1", "False"), master("10.0.0.2", "False")
	member := func(address string) etcd.Member {
		return etcd.Member{Name: pki.EtcdMember(address), Started: true, Healthy: true}
	}
	silent, learning := member("10.0.0.1"), member("10.0.0.1")
	silent.Healthy, learning.Learner = false, true
	for name, test := range map[string]struct {
		nodes, retiring []cluster.Node
		members         []etcd.Member
		want            []string
	}{
		"those of the spec":                     {nodes: []cluster.Node{one}, retiring: []cluster.Node{two}, want: []string{"10.0.0.1"}},
		"those that leave, where no other is":   {nodes: []cluster.Node{ill}, retiring: []cluster.Node{two}, want: []string{"10.0.0.2"}},
		"nobody, when those that leave are ill": {nodes: []cluster.Node{ill}, retiring: []cluster.Node{alsoIll}},
		"all, as nothing is known of etcd":      {nodes: []cluster.Node{one, two}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"all that have etcd": {nodes: []cluster.Node{one, two}, members: []etcd.Member{member("10.0.0.1"), member("10.0.0.2")},
			want: []string{"10.0.0.1", "10.0.0.2"}},
		"not the one whose etcd does not answer": {nodes: []cluster.Node{one, two}, members: []etcd.Member{silent, member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"not the one whose etcd learns":          {nodes: []cluster.Node{one, two}, members: []etcd.Member{learning, member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"not the one without etcd":               {nodes: []cluster.Node{one, two}, members: []etcd.Member{member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"even it, where no other is":             {nodes: []cluster.Node{one, alsoIll}, members: []etcd.Member{silent, member("10.0.0.2")}, want: []string{"10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := build(&cluster.Snapshot{Config: fixture.MakeCluster("abc").Obj(), Nodes: test.nodes, Retiring: test.retiring, Etcd: etcd.State{Members: test.members}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, object := range desired.Objects {
				if slice, ok := object.(*discoveryv1.EndpointSlice); ok && slice.Name == key.RoleMaster {
					for _, e := range slice.Endpoints {
						got = append(got, e.Addresses...)
					}
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the API is behind %v, want %v", got, test.want)
			}
		})
	}
}
