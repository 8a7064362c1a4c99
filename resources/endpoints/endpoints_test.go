package endpoints

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// TestWhoAnswersForTheAPI covers masters that have left the spec and are part of etcd yet: the API goes on with them when no other is there.
func TestWhoAnswersForTheAPI(t *testing.T) {
	master := func(address string, ready corev1.ConditionStatus) cluster.Node {
		return cluster.Node{Role: key.RoleMaster, Pods: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "master-" + address},
			Status:     corev1.PodStatus{PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}}}
	}
	for name, test := range map[string]struct {
		nodes, retiring []cluster.Node
		want            []string
	}{
		"those of the spec":                     {[]cluster.Node{master("10.0.0.1", "True")}, []cluster.Node{master("10.0.0.2", "True")}, []string{"10.0.0.1"}},
		"those that leave, where no other is":   {[]cluster.Node{master("10.0.0.1", "False")}, []cluster.Node{master("10.0.0.2", "True")}, []string{"10.0.0.2"}},
		"nobody, when those that leave are ill": {[]cluster.Node{master("10.0.0.1", "False")}, []cluster.Node{master("10.0.0.2", "False")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := build(&cluster.Snapshot{Config: fixture.MakeCluster("abc").Obj(), Nodes: test.nodes, Retiring: test.retiring})
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
