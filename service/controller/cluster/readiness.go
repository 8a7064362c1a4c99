package cluster

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"

	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodestep"
)

// readiness is that of the node pod and, as far as it is known, of its Node: a master's pod has no readiness gate, so its
// Node is asked here. The message of a node that is not Ready is the step that it is at.
func (r *Reconciler) readiness(s *snapshot.Snapshot, n *snapshot.Node) {
	n.Ready, n.Message = r.Readiness(*n)
	if r.Workloads == nil {
		return
	}
	if reason := s.Delayed(*n); reason != "" {
		n.Ready, n.Message = false, reason
		return
	}
	seen := nodestep.Seen{Pod: n.Pod(), API: api(s.Workload)}
	if seen.Pod != nil {
		seen.Node, seen.Request = s.Workload.Node(seen.Pod.Name), request(s, seen.Pod.Name)
	}
	step := nodestep.At(seen)
	switch n.Step = step.Name; {
	case n.Ready && !s.Workload.Connected:
		// What was Ready is taken for Ready until something else is known.
		n.Step = nodestep.Ready
	case step.Name != nodestep.Ready:
		n.Ready, n.Message = false, fmt.Sprintf("%s: %s", step.Name, step.Message)
	}
	if trouble := memberTrouble(s, *n); n.Ready && trouble != "" {
		n.Ready, n.Message = false, trouble
	}
}

// memberTrouble is why etcd does not count on a master; empty when it does, or when nobody knows. One that did not answer in time
// counts: whether it serves is told by its API server, which does not without it.
func memberTrouble(s *snapshot.Snapshot, n snapshot.Node) string {
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

func api(w snapshot.Workload) nodestep.API {
	switch {
	case w.Connected:
		return nodestep.APIConnected
	case w.Reason == "NoMaster" || w.Reason == "Connecting":
		return nodestep.APIConnecting
	}
	return nodestep.APIUnreachable
}

// request is the decision on the newest request of the kubelet of the given node that is open or approved; nil when there is
// none.
func request(s *snapshot.Snapshot, name string) *joining.Decision {
	var newest *certificatesv1.CertificateSigningRequest
	world := joining.NewWorld(s.NodePods(), s.Workload.ReadyNodes())
	var decision *joining.Decision
	for i := range s.Workload.Requests {
		r := &s.Workload.Requests[i]
		if joining.NodeOf(*r) != name || newest != nil && r.CreationTimestamp.Before(&newest.CreationTimestamp) {
			continue
		}
		d := joining.Decide(*r, world)
		if joining.Approved(r) {
			d = joining.Decision{Verdict: joining.Approve}
		}
		if d.Verdict != joining.Ignore {
			newest, decision = r, &d
		}
	}
	return decision
}
