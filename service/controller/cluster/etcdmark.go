package cluster

import (
	corev1 "k8s.io/api/core/v1"

	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
)

// findData notes where the data of a master is, and of which member, as the status tells.
func findData(s *snapshot.Snapshot, n *snapshot.Node) {
	if known := statusOf(s.Config.Status.Nodes, n.Role, n.ID); known != nil {
		n.EtcdHost, n.EtcdClaim, n.EtcdMember = known.EtcdHost, known.EtcdClaim, known.EtcdMember
		n.EtcdMark = known.EtcdMark
	}
	if s.EtcdOnHost(*n) && n.EtcdHost == "" && n.EtcdMark == "" {
		n.EtcdMark = etcdMark(s, n)
	}
}

// etcdMark is the mark of the directory of a master's data before it is known on which host that is. Machines that are made already have it: an
// operator of an earlier version may have made them.
func etcdMark(s *snapshot.Snapshot, n *snapshot.Node) string {
	var made []corev1.PodSpec
	if n.Deployment != nil {
		made = append(made, n.Deployment.Spec.Template.Spec)
	}
	for _, pod := range n.Pods {
		made = append(made, pod.Spec)
	}
	for i := range made {
		if directory := nodepod.EtcdDirectory(&made[i]); directory != "" {
			return key.EtcdMarkOf(s.ID(), directory)
		}
	}
	return key.EtcdMark(s.Keys[snapshot.KeyEncryption])
}
