package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestWhoAnswersForTheAPI covers masters that are no longer in the spec and still part of etcd, which serve the API if
// there are no others, and masters whose own member of etcd cannot be used.
func TestWhoAnswersForTheAPI(t *testing.T) {
	master := func(address string, ready corev1.ConditionStatus) state.Node {
		return state.Node{ID: address, Role: key.RoleMaster, Pods: []corev1.Pod{{
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
		nodes, retiring []state.Node
		members         []etcd.Member
		want            []string
	}{
		"those of the spec":                         {nodes: []state.Node{one}, retiring: []state.Node{two}, want: []string{"10.0.0.1"}},
		"those that leave, where no other is":       {nodes: []state.Node{ill}, retiring: []state.Node{two}, want: []string{"10.0.0.2"}},
		"none, when those that leave are unhealthy": {nodes: []state.Node{ill}, retiring: []state.Node{alsoIll}},
		"all, as nothing is known of etcd":          {nodes: []state.Node{one, two}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"all that have etcd": {nodes: []state.Node{one, two}, members: []etcd.Member{member("10.0.0.1"), member("10.0.0.2")},
			want: []string{"10.0.0.1", "10.0.0.2"}},
		"not the one whose etcd does not answer": {nodes: []state.Node{one, two}, members: []etcd.Member{silent, member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"not the one whose etcd learns":          {nodes: []state.Node{one, two}, members: []etcd.Member{learning, member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"not the one without etcd":               {nodes: []state.Node{one, two}, members: []etcd.Member{member("10.0.0.2")}, want: []string{"10.0.0.2"}},
		"even it, where no other is":             {nodes: []state.Node{one, alsoIll}, members: []etcd.Member{silent, member("10.0.0.2")}, want: []string{"10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := build(&state.Cluster{Config: fixture.MakeCluster("abc").Obj(), Nodes: test.nodes, Retiring: test.retiring, Etcd: etcd.State{Members: test.members}})
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

// TestWhatIsKnownOfPods: a pod is removed from the Services if anything that is known of it says that it is down,
// regardless of its condition Ready, because a dead kubelet does not withdraw that. The Node of a master does not
// matter for its address, because its own API server would have to report the recovery. Only masters are used while
// they terminate, and only if there are no others.
func TestWhatIsKnownOfPods(t *testing.T) {
	type change func(*corev1.Pod)
	with := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) change {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
		}
	}
	phase := func(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	nothing := func(*corev1.Pod) {}
	both := func(a, b change) change { return func(p *corev1.Pod) { a(p); b(p) } }
	byKubelet := with(corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet)
	const is, goes, absent = "ready=true serving=true terminating=false", "ready=false serving=true terminating=true", ""
	for name, test := range map[string]struct {
		change         change
		master, worker string
	}{
		"serves":              {nothing, is, is},
		"its gate is True":    {with(key.ConditionNodeReady, corev1.ConditionTrue, ""), is, is},
		"its gate is not set": {with(key.ConditionNodeReady, corev1.ConditionUnknown, ""), is, is},
		"its Node is not Ready, its kubelet dead": {with(key.ConditionNodeReady, corev1.ConditionFalse, ""), is, absent},
		"failed, and Ready":                       {phase(corev1.PodFailed), absent, absent},
		"succeeded, and Ready":                    {phase(corev1.PodSucceeded), absent, absent},
		"about to be evicted by others":           {with(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI"), is, is},
		"its kubelet has spared it":               {with(corev1.DisruptionTarget, corev1.ConditionFalse, corev1.PodReasonTerminationByKubelet), is, is},
		"its kubelet ends it":                     {byKubelet, goes, absent},
		"deleted":                                 {deleted, goes, absent},
		"deleted, and not Ready":                  {both(deleted, unready), absent, absent},
		"deleted, and ended":                      {both(deleted, phase(corev1.PodSucceeded)), absent, absent},
		"deleted, and drains":                     {both(deleted, with(key.ConditionDrained, corev1.ConditionFalse, "Draining")), goes, absent},
		"deleted, and powered down":               {both(deleted, with(key.ConditionDrained, corev1.ConditionTrue, "Drained")), absent, absent},
		"not Ready":                               {unready, absent, absent},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []state.Node
			for role, address := range map[string]string{key.RoleMaster: "10.0.0.1", key.RoleWorker: "10.0.0.2"} {
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: role}, Status: corev1.PodStatus{
					PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				}}
				if role == key.RoleWorker {
					pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: key.ConditionNodeReady}}
				}
				test.change(&pod)
				nodes = append(nodes, state.Node{ID: role, Role: role, Pods: []corev1.Pod{pod}})
			}
			got := states(t, &state.Cluster{Config: fixture.MakeCluster("abc").Obj(), Nodes: nodes})
			want := map[string]string{key.RoleMaster: test.master, key.RoleWorker: test.worker, "mirror " + key.RoleMaster: "", "mirror " + key.RoleWorker: ""}
			if test.master == is { // the old API cannot mark the others as terminating
				want["mirror "+key.RoleMaster] = "10.0.0.1"
			}
			if test.worker == is {
				want["mirror "+key.RoleWorker] = "10.0.0.2"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("other endpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMastersThatTerminateAreTheLastChoice: they are left out if another master stays.
func TestMastersThatTerminateAreTheLastChoice(t *testing.T) {
	master := func(id, address string, deleted bool) state.Node {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: id}, Status: corev1.PodStatus{
			PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}
		if deleted {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		return state.Node{ID: id, Role: key.RoleMaster, Pods: []corev1.Pod{pod}}
	}
	const is, goes = "ready=true serving=true terminating=false", "ready=false serving=true terminating=true"
	for name, test := range map[string]struct {
		nodes, retiring []state.Node
		want            string
	}{
		"one stays": {nodes: []state.Node{master("m0", "10.0.0.1", true), master("m1", "10.0.0.2", false)}, want: is},
		"one that is removed from the spec stays": {nodes: []state.Node{master("m0", "10.0.0.1", true)}, retiring: []state.Node{master("m1", "10.0.0.2", false)}, want: is},
		"all go": {nodes: []state.Node{master("m0", "10.0.0.1", true), master("m1", "10.0.0.2", true)}, want: goes + ", " + goes},
		"the last one was removed from the spec, too": {retiring: []state.Node{master("m1", "10.0.0.2", true)}, want: goes},
	} {
		t.Run(name, func(t *testing.T) {
			got := states(t, &state.Cluster{Config: fixture.MakeCluster("abc").Obj(), Nodes: test.nodes, Retiring: test.retiring})
			if got[key.RoleMaster] != test.want {
				t.Errorf("got %q, want %q", got[key.RoleMaster], test.want)
			}
		})
	}
}

// states returns the conditions of the endpoints of "master" and "worker", and the addresses in the old API.
func states(t *testing.T, s *state.Cluster) map[string]string {
	t.Helper()
	desired, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, object := range desired.Objects {
		switch o := object.(type) {
		case *discoveryv1.EndpointSlice:
			var all []string
			for _, e := range o.Endpoints {
				all = append(all, fmt.Sprintf("ready=%v serving=%v terminating=%v", *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating))
			}
			if o.Name == key.RoleMaster || o.Name == key.RoleWorker {
				got[o.Name] = strings.Join(all, ", ")
			}
		case *corev1.Endpoints:
			got["mirror "+o.Name] = ""
			for _, subset := range o.Subsets {
				for _, a := range subset.Addresses {
					got["mirror "+o.Name] += a.IP
				}
			}
		}
	}
	return got
}
