package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// nodeStates are what one node can look like.
var nodeStates = map[string]func(t *testing.T, o *Observed, role, id string){
	"well": func(*testing.T, *Observed, string, string) {},
	"old":  func(t *testing.T, o *Observed, role, id string) { o.age(t, role, id) },
	"bad":  func(t *testing.T, o *Observed, _, id string) { o.fall(t, id) },
	"both": func(t *testing.T, o *Observed, role, id string) { o.age(t, role, id); o.fall(t, id) },
	"none": func(t *testing.T, o *Observed, role, id string) {
		delete(o.Deployments, key.DeploymentName(role, id))
		o.pod(t, id).Labels = nil
	},
	"mute": func(t *testing.T, o *Observed, role, id string) {
		o.age(t, role, id)
		if m := o.member(&state.Cluster{Config: o.Config}, id); m != nil {
			m.Healthy = false
		}
	},
}

// TestRolloutOfEverySmallCluster plans for all states of three masters and a worker, and checks what is replaced.
func TestRolloutOfEverySmallCluster(t *testing.T) {
	names := []string{"well", "old", "bad", "both", "none", "mute"}
	base := settled(t, fixture.MakeCluster("ab1cd").Masters(3).Workers(1))
	plans := 0
	for i := range len(names) * len(names) * len(names) * 3 * 4 {
		of := [4]string{names[i%6], names[i/6%6], names[i/36%6], names[i/216%3]}
		paused, connected := i/648%2 == 1, i/1296%2 == 1
		o := base
		o.Config, o.Pods, o.Deployments = base.Config.DeepCopy(), nil, nil
		o.Objects, o.Etcd.Members = copied(base.Objects), slices.Clone(base.Etcd.Members)
		for at, id := range []string{"m0aaa", "m1aaa", "m2aaa", "w0aaa"} {
			role := key.RoleMaster
			if at == 3 {
				role = key.RoleWorker
			}
			nodeStates[of[at]](t, &o, role, id)
		}
		o.Config.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: 1, Paused: paused}
		if !connected {
			o.Workload, o.Etcd = state.Workload{Reason: "Timeout"}, etcd.State{}
		}
		s := planner.Plan(o, now)
		plans++
		for _, broken := range brokenRules(of, paused, connected, s) {
			t.Errorf("%v, paused %t, connected %t: %s; replaced: %v", of, paused, connected, broken, s.Rollout.Replace)
		}
	}
	t.Logf("%d plans", plans)
}

func copied(from state.Objects) state.Objects {
	to := state.Objects{Deployments: map[string]*appsv1.Deployment{}, Retired: from.Retired}
	for i := range from.Pods {
		to.Pods = append(to.Pods, *from.Pods[i].DeepCopy())
	}
	for name, d := range from.Deployments {
		to.Deployments[name] = d
	}
	return to
}

// brokenRules returns which rules of safety a plan breaks. of has the states of three masters and a worker.
func brokenRules(of [4]string, paused, connected bool, s *state.Cluster) (broken []string) {
	serving, left, masters, workers := 0, 0, 0, 0
	for i, n := range s.Nodes {
		goes := s.Rollout.Replace[n.ID]
		well := of[i] == "well" || of[i] == "old"
		switch {
		case goes && n.Deployment == nil, goes && !n.Outdated():
			broken = append(broken, n.ID+" is replaced and is not outdated")
		case goes && paused:
			broken = append(broken, n.ID+" is replaced by a paused rollout")
		case goes && well && !connected && n.Role == key.RoleMaster:
			broken = append(broken, n.ID+" looks well and is replaced while nothing is known of the cluster")
		}
		if n.Role == key.RoleWorker {
			workers += count(goes)
			continue
		}
		masters += count(goes)
		serving += count(well)
		left += count(well && !goes)
	}
	if serving >= 2 && left < 2 {
		broken = append(broken, fmt.Sprintf("%d masters are left of %d that serve", left, serving))
	}
	if masters > 1 {
		broken = append(broken, fmt.Sprintf("%d masters are replaced at once", masters))
	}
	if workers > 0 && (masters > 0 || slices.ContainsFunc(of[:3], func(state string) bool { return state != "well" })) {
		broken = append(broken, "a worker is replaced before the masters are well")
	}
	return broken
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestMastersWithoutAMajority: since when there is none is recorded once and kept, and masters without a majority are
// replaced together only after that has lasted, or if etcd was never founded.
func TestMastersWithoutAMajority(t *testing.T) {
	before := metav1.NewTime(now.Add(-time.Minute))
	long := metav1.NewTime(now.Add(-24 * time.Hour))
	for name, test := range map[string]struct {
		minority, founded bool
		since, want       *metav1.Time
		lost              bool
	}{
		"a majority is Ready":                      {false, true, nil, nil, false},
		"a majority is Ready again":                {false, true, &long, nil, false},
		"the majority was lost just now":           {true, true, nil, new(metav1.NewTime(now)), false},
		"the majority was lost a minute ago":       {true, true, &before, &before, false},
		"the majority was lost a day ago":          {true, true, &long, &long, true},
		"etcd was never founded":                   {true, false, nil, new(metav1.NewTime(now)), true},
		"etcd was never founded, and all is Ready": {false, false, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Masters(3).Obj(), Now: now}
			s.Config.Status.MinoritySince = test.since
			s.Nodes = state.NewNodes(s.Config.Spec)
			if test.founded {
				s.Nodes[0].EtcdMember = "1"
			}
			if got := lost(s, test.minority); got != test.lost || !s.MinoritySince.Equal(test.want) {
				t.Errorf("they are lost: %t since %v, want %t since %v", got, s.MinoritySince, test.lost, test.want)
			}
		})
	}
}

// TestNothingIsOutdatedWithoutBootData: while keys or certificates are missing, or a node has no index, the current hash
// of a node is not known, so no node is replaced.
func TestNothingIsOutdatedWithoutBootData(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"certificates are missing": func(o *Observed) { o.Rendering = false },
		"a node has no index":      func(o *Observed) { delete(o.Config.Status.KVM.NodeIndexes, "w0aaa") },
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd").Masters(3).Workers(1))
			o.age(t, key.RoleMaster, "m0aaa")
			if s := planner.Plan(o, now); !s.Rollout.Replace["m0aaa"] {
				t.Fatal("the outdated node is not replaced anyway")
			}
			change(&o)
			if s := planner.Plan(o, now); s.BootDataErr == nil || len(s.Rollout.Replace) > 0 {
				t.Errorf("%v is replaced (%v)", s.Rollout.Replace, s.BootDataErr)
			}
		})
	}
}
