package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// FoundersOf reads who founded the cluster's etcd from its namespace. Before it is written down there, and while there has been no machine,
// it is the masters of the spec. What is written down for etcd to be founded with stays until it has: the machine of one of them may run that
// the cache does not show yet, with a member that knows the others. Where nobody has written it down it is those that have machines, retired
// ones included: masters were not changed in the time before it was. Those who have been given the data of a snapshot found the cluster anew.
// The status has what was written down, for somebody may delete the namespace.
func FoundersOf(namespace *corev1.Namespace, status *v1alpha1.EtcdStatus, nodes, retired []Node, r Restore) []string {
	var all []string
	for _, n := range nodes {
		if n.Role == key.RoleMaster {
			all = append(all, n.ID)
		}
	}
	made := mastersMade(nodes, retired)
	switch text := namespace.Annotations[key.AnnotationEtcdFounders]; {
	case r.Phase() == etcd.Founding, len(made) == 0 && r.Done == "" && !isFounding(namespace):
		return all
	case text != "":
		return strings.Split(text, ",")
	case status != nil && len(status.Founders) > 0:
		return status.Founders
	}
	return made
}

// mastersMade are the ids of the masters that have had a machine. That there was one stands in the status, too, for Deployments may be lost.
func mastersMade(nodes, retired []Node) []string {
	var made []string
	for _, n := range nodes {
		if n.Role == key.RoleMaster && (n.Deployment != nil || n.EtcdHost != "" || n.EtcdClaim != "") {
			made = append(made, n.ID)
		}
	}
	for _, n := range retired {
		made = append(made, n.ID)
	}
	return made
}

// HoldFounders returns a copy of the KVMConfig that still has the masters which etcd is being founded with and the spec has lost
// meanwhile, and their ids, if hold says that the namespace is the cluster's. Without a majority of those that it knows etcd never begins. They go like all others, once it has.
func HoldFounders(config *v1alpha1.KVMConfig, namespace *corev1.Namespace, hold Hold) (complete *v1alpha1.KVMConfig, held []string) {
	if !isFounding(namespace) || hold != HoldOwn && hold != HoldFormer || len(config.Spec.KVM.Masters) == 0 {
		return config, nil
	}
	complete = config.DeepCopy()
	for _, id := range strings.Split(namespace.Annotations[key.AnnotationEtcdFounders], ",") {
		if slices.ContainsFunc(config.Spec.Cluster.Masters, func(n v1alpha1.Node) bool { return n.ID == id }) {
			continue
		}
		// Of what size it was is forgotten, and counts only where its machine was not made yet.
		machine := *config.Spec.KVM.Masters[0].DeepCopy()
		machine.ID = id
		complete.Spec.Cluster.Masters = append(complete.Spec.Cluster.Masters, v1alpha1.Node{ID: id})
		complete.Spec.KVM.Masters = append(complete.Spec.KVM.Masters, machine)
		held = append(held, id)
	}
	return complete, held
}

// isFounding says that the masters that the namespace names are to found etcd, and that nobody has seen that they have.
func isFounding(namespace *corev1.Namespace) bool {
	return namespace.Annotations[key.AnnotationEtcdFounding] != "" && namespace.Annotations[key.AnnotationEtcdFounders] != ""
}

// LookAtFounding finds out whether etcd is still being founded. It needs to be known what the workload cluster and its etcd tell, and which
// machines there are: an API that answers has an etcd, and a cluster that has machines and does not say so has begun before.
func (s *Snapshot) LookAtFounding(namespace *corev1.Namespace, retired []Node, held []string) {
	s.Held = held
	switch s.Restore.Phase() {
	case etcd.Founding:
		s.Founding = true
	case etcd.NotRestoring:
		begins := isFounding(namespace) || len(mastersMade(s.Nodes, retired)) == 0 && s.Restore.Done == ""
		s.Founding = begins && !s.Etcd.Known() && !s.Founded() && !s.Workload.Connected
	case etcd.Checking, etcd.Stopping, etcd.Committing, etcd.Placing:
	}
}

// Holds says that a master is there only for etcd to begin, see HoldFounders.
func (s *Snapshot) Holds(n Node) bool {
	return n.Role == key.RoleMaster && slices.Contains(s.Held, n.ID)
}
