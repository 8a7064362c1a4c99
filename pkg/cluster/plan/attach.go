package plan

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// attach adds to every node its Deployment, its pods and the place of its data. It returns the masters
// that have machines and are not in the spec, by ID.
func attach(s *state.Cluster, found state.Objects, restores []batchv1.Job) (retired []state.Node) {
	m := state.Machines{Config: s.Config, Nodes: s.Nodes}
	m.Attach(found.Pods, found.Deployments)
	s.Leaving = m.Leaving
	for i := range s.Nodes {
		findData(s, &s.Nodes[i], restores)
	}
	for i := range found.Retired {
		n := state.Node{ID: found.Retired[i].Labels[key.LabelNode], Role: key.RoleMaster, Deployment: &found.Retired[i]}
		n.Pods = state.PodsOf(found.Pods, n)
		findData(s, &n, nil)
		retired = append(retired, n)
	}
	slices.SortFunc(retired, func(a, b state.Node) int { return strings.Compare(a.ID, b.ID) })
	return retired
}

// findData sets from the status where the data of a master is, and of which member it is. A master that returns to the
// spec before its data is removed uses that data again.
func findData(s *state.Cluster, n *state.Node, restores []batchv1.Job) {
	if known := state.StatusOf(s.Config.Status.Nodes, n.Role, n.ID); known != nil {
		n.EtcdHost, n.EtcdClaim, n.EtcdMember = known.EtcdHost, known.EtcdClaim, known.EtcdMember
		n.EtcdMark = known.EtcdMark
	}
	if left := s.Left(n.ID); s.EtcdOnHost(*n) && n.EtcdHost == "" && left != nil {
		n.EtcdHost, n.EtcdMark, n.EtcdMember = left.EtcdHost, left.EtcdMark, left.EtcdMember
	}
	if s.EtcdOnHost(*n) && n.EtcdHost == "" && n.EtcdMark == "" {
		n.EtcdMark = etcdMark(s, n, restores)
	}
}

// etcdMark returns the mark of the directory of a master's data before it is known on which host that is. If machines
// exist already it is theirs, because an earlier version of the operator may have created them. If a Job puts a snapshot
// there it is the Job's, because the mark for new masters may change while the Job runs.
func etcdMark(s *state.Cluster, n *state.Node, restores []batchv1.Job) string {
	var made []corev1.PodSpec
	if n.Deployment != nil {
		made = append(made, n.Deployment.Spec.Template.Spec)
	}
	for _, pod := range n.Pods {
		made = append(made, pod.Spec)
	}
	for i := range restores {
		if template := &restores[i].Spec.Template; template.Labels[key.LabelNode] == n.ID {
			made = append(made, template.Spec)
		}
	}
	for i := range made {
		if directory := nodepod.EtcdDirectory(&made[i]); directory != "" {
			return key.EtcdMarkOf(s.ID(), directory)
		}
	}
	return s.NewEtcdMark(n.ID)
}
