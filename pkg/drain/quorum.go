package drain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Masters is what is known of the masters of a cluster.
type Masters struct {
	// Spec are the ids of the masters that the spec has.
	Spec []string
	// Pods are the cluster's pods; those of masters count.
	Pods []corev1.Pod
	// Ready has the Nodes that are seen, by name, and whether each is Ready; nil while the workload cluster is not seen.
	Ready map[string]bool
	// Vote is what is known of the vote of the member of a node.
	Vote func(nodeID string) etcd.Vote
	// Leaving says that a pod's machine leaves: the pod says so, or its host does.
	Leaving func(*corev1.Pod) bool
}

// Count counts the masters by node, and the healthy ones besides that of the pod: those that are Ready and stay, and whose members have a vote in
// etcd and answer, as far as that is known. A master that joins has no vote, so it is no part of the majority yet. A master that was removed from the
// spec and has lost its vote does not count at all, because its pod may stay on a dead host. If the Node of the pod itself is not Ready, the word of
// the other members is enough: several Nodes may be unhealthy of one cause that only new machines can remove.
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
		vote := m.Vote(id)
		if vote != etcd.VoteNone {
			all[id] = true
		}
		stays := Stays(pod.Name, Certain(pod), Master{
			Pod: other.Name, Ready: m.healthy(other) || ill && vote == etcd.VoteGiven, Deleted: other.DeletionTimestamp != nil, Leaving: m.Leaving(other),
		})
		if stays && slices.Contains([]etcd.Vote{etcd.VoteGiven, etcd.VoteUnknown}, vote) {
			well[id] = true
		}
	}
	return len(all), len(well)
}

// healthy says that a master serves, as far as its pod and its Node know. When a host dies, only the readiness of a pod is withdrawn; what its
// containers said last stays.
func (m Masters) healthy(pod *corev1.Pod) bool {
	nodeReady, known := m.Ready[pod.Name]
	return isTrue(pod, corev1.PodReady) && (nodeReady || !known)
}

// MayVote says whether a master counts as a part of etcd although its Node is not Ready: its kubelet may be silent while its member is healthy. Where
// no member can be asked, what its machine says counts, because it may be one of those that keep the majority.
func MayVote(own etcd.Vote, serves bool) bool {
	return own == etcd.VoteGiven || own == etcd.VoteAwaited || own == etcd.VoteUnknown && serves
}
