package drain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Masters is what is known of the masters of a cluster.
type Masters struct {
	// Spec are the IDs of the masters in the spec.
	Spec []string
	// Pods are the cluster's pods; those of masters count.
	Pods []corev1.Pod
	// Ready has the known Nodes by name, and whether each is Ready; nil while the operator is not connected to the
	// workload cluster.
	Ready map[string]bool
	// Vote returns what is known of the vote of the member of a node, and how many members of etcd have a vote; zero if
	// that is not known.
	Vote func(nodeID string) (vote etcd.Vote, voters int)
	// Leaving returns whether a pod's machine leaves: its condition says so, or its host shuts down.
	Leaving func(*corev1.Pod) bool
}

// Count returns the number of masters by node, and the number of healthy ones other than that of the pod: those that
// are Ready and stay, and whose members have a vote in etcd and respond, as far as that is known. A master that joins
// has no vote, so it is not part of the quorum yet. A master that was removed from the spec and has lost its vote does
// not count at all, because its pod may stay on a dead host. There are at least as many masters as voters, because a
// member without a machine is part of the quorum until etcd has removed it. A single master has no other that could
// take over, so a voter that a person added does not hold it. If the Node of the pod itself is not Ready,
// it is enough that the members of the others respond: several Nodes may share a fault that only replacement fixes.
func (m Masters) Count(pod *corev1.Pod) (masters, healthy int) {
	own := pod.Labels[key.LabelNode]
	all, well := map[string]bool{own: true}, map[string]bool{}
	nodeReady, known := m.Ready[pod.Name]
	ill := known && !nodeReady
	for _, id := range m.Spec {
		all[id] = true
	}
	for i := range m.Pods {
		other := &m.Pods[i]
		id := other.Labels[key.LabelNode]
		if other.Labels[key.LabelApp] != key.RoleMaster || id == own || Stopped(other) {
			continue
		}
		vote, _ := m.Vote(id)
		if vote != etcd.VoteNone && vote != etcd.VoteLearner {
			all[id] = true
		}
		stays := CountsForQuorum(pod.Name, Confirmed(pod), Master{
			Pod: other.Name, Ready: m.healthy(other) || ill && vote == etcd.VoteGiven, Deleted: other.DeletionTimestamp != nil, Leaving: m.Leaving(other),
		})
		if stays && slices.Contains([]etcd.Vote{etcd.VoteGiven, etcd.VoteUnknown}, vote) {
			well[id] = true
		}
	}
	if _, voters := m.Vote(own); len(all) > 1 {
		return max(len(all), voters), len(well)
	}
	return len(all), len(well)
}

// healthy returns whether a master is Ready, as far as its pod and its Node say. When a host dies, only the readiness
// of a pod is withdrawn; the last state of its containers stays.
func (m Masters) healthy(pod *corev1.Pod) bool {
	nodeReady, known := m.Ready[pod.Name]
	return isTrue(pod, corev1.PodReady) && (nodeReady || !known)
}

// MayVote returns whether a master counts for the quorum of etcd although its Node is not Ready: its kubelet may not
// respond while its member is healthy. If members cannot be queried, the report of its runner counts, because it may be
// one of those that keep the quorum.
func MayVote(own etcd.Vote, serves bool) bool {
	return own == etcd.VoteGiven || own == etcd.VoteAwaited || own == etcd.VoteUnknown && serves
}
