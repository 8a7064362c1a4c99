package plan

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// readiness sets the readiness of a node from its pod and, if it is known, its Node: a master's pod has no readiness
// gate, so its Node is checked here. The message of a node that is not Ready is its step; answered are the decisions on
// the kubelets' requests.
func (p Planner) readiness(s *state.Cluster, n *state.Node, connects bool, answered map[string]*joining.Decision) {
	n.Ready, n.Message = p.Readiness(*n)
	if reason := s.Delayed(*n); reason != "" {
		n.Ready, n.Message = false, reason
		return
	}
	if !connects {
		return
	}
	seen := nodestep.Seen{Pod: n.Pod(), API: api(s.Workload)}
	if seen.Pod != nil {
		seen.Node, seen.Request = s.Workload.Node(seen.Pod.Name), answered[seen.Pod.Name]
	}
	step := nodestep.At(seen)
	switch n.Step = step.Name; {
	case n.Ready && !s.Workload.Connected:
		// What was Ready counts as Ready until something else is known.
		n.Step = nodestep.Ready
	case step.Name != nodestep.Ready:
		n.Ready, n.Message = false, fmt.Sprintf("%s: %s", step.Name, step.Message)
	}
	if trouble := memberTrouble(s, *n); n.Ready && trouble != "" {
		n.Ready, n.Message = false, trouble
	}
}

// memberTrouble returns why etcd does not count on a master; empty if it does, or if that is not known. A member that
// did not respond in time counts, because that may pass; for the decision which node is replaced see silent.
func memberTrouble(s *state.Cluster, n state.Node) string {
	if n.Role != key.RoleMaster || !s.Etcd.Known() {
		return ""
	}
	switch m := s.EtcdMember(n.ID); {
	case m == nil:
		return "it has no member of etcd yet"
	case m.Learner:
		return "its member of etcd has no vote yet"
	}
	return ""
}

// silent returns whether a master's member of etcd does not respond to the others. Its machine and its Node may be
// healthy: no other master is replaced before the member has recovered, and this one is replaced first.
func silent(s *state.Cluster, n state.Node) bool {
	if n.Role != key.RoleMaster {
		return false
	}
	m := s.EtcdMember(n.ID)
	return m != nil && !m.Healthy
}

func api(w state.Workload) nodestep.API {
	switch {
	case w.Connected:
		return nodestep.APIConnected
	case w.Reason == "NoMaster" || w.Reason == "Connecting":
		return nodestep.APIConnecting
	}
	return nodestep.APIUnreachable
}

// answers returns the decisions on the newest requests of kubelets that are open or approved, by the names of their
// nodes. Each request is parsed once, because a client with a bootstrap token can create many.
func answers(s *state.Cluster) map[string]*joining.Decision {
	world := s.Joining()
	newest, all := map[string]metav1.Time{}, map[string]*joining.Decision{}
	for i := range s.Workload.Requests {
		r := &s.Workload.Requests[i]
		name := joining.NodeOf(*r)
		if at, known := newest[name]; name == "" || known && r.CreationTimestamp.Before(&at) {
			continue
		}
		d := joining.Decision{Verdict: joining.Approve}
		if !joining.Approved(r) {
			d = joining.Decide(*r, world)
		}
		if d.Verdict != joining.Ignore {
			newest[name], all[name] = r.CreationTimestamp, &d
		}
	}
	return all
}
