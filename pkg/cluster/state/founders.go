package state

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// FoundersOf returns the founding masters of the cluster's etcd. They are recorded at the namespace. Before that, and
// while there has been no machine, they are the masters of the spec. Founders that are recorded stay until etcd is
// founded: one of them may have a running machine that the cache does not show yet, with a member that knows the
// others. The status has the record too, because the namespace may be deleted. Without any record they are the masters
// that have machines, including retired ones, because masters could not change before the record was introduced. After
// a restore the masters that got the data of the snapshot found the cluster again.
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

// mastersMade returns the IDs of the masters that have had a machine. The status has this too, because Deployments may
// be lost.
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

// HoldFounders returns a copy of the KVMConfig that has the masters with which etcd is being founded and that were
// removed from the spec in the meantime, and the IDs of those masters, if hold says that the namespace is the
// cluster's. Without a majority of its founders etcd never starts. Once it is founded, these masters are removed like
// all others.
func HoldFounders(config *v1alpha1.KVMConfig, namespace *corev1.Namespace, hold Hold) (complete *v1alpha1.KVMConfig, held []string) {
	if !isFounding(namespace) || hold != HoldOwn && hold != HoldFormer || len(config.Spec.KVM.Masters) == 0 {
		return config, nil
	}
	complete = config.DeepCopy()
	for _, id := range strings.Split(namespace.Annotations[key.AnnotationEtcdFounders], ",") {
		if slices.ContainsFunc(config.Spec.Cluster.Masters, func(n v1alpha1.Node) bool { return n.ID == id }) {
			continue
		}
		// Its machine's size is no longer known. That matters only if the machine was not created yet.
		machine := *config.Spec.KVM.Masters[0].DeepCopy()
		machine.ID = id
		complete.Spec.Cluster.Masters = append(complete.Spec.Cluster.Masters, v1alpha1.Node{ID: id})
		complete.Spec.KVM.Masters = append(complete.Spec.KVM.Masters, machine)
		held = append(held, id)
	}
	return complete, held
}

// isFounding returns whether the masters that the namespace names are to found etcd, and whether it is not known that
// they have.
func isFounding(namespace *corev1.Namespace) bool {
	return namespace.Annotations[key.AnnotationEtcdFounding] != "" && namespace.Annotations[key.AnnotationEtcdFounders] != ""
}

// LookAtFounding determines whether etcd is still being founded. Workload, Etcd and the machines of s have to be set
// before: an API that responds has an etcd, and a cluster that has machines and is not marked as being founded was
// founded earlier.
func (s *Cluster) LookAtFounding(namespace *corev1.Namespace, retired []Node, held []string) {
	s.AwaitingFounding = held
	switch s.Restore.Phase() {
	case etcd.Founding:
		s.Founding = true
	case etcd.NotRestoring:
		begins := isFounding(namespace) || len(mastersMade(s.Nodes, retired)) == 0 && s.Restore.Done == ""
		s.Founding = begins && !s.Etcd.Known() && !s.Founded() && !s.Workload.Connected
	case etcd.Checking, etcd.Stopping, etcd.Committing, etcd.Placing:
	}
}

// Holds returns whether a master exists only so that etcd can be founded, see HoldFounders.
func (s *Cluster) Holds(n Node) bool {
	return n.Role == key.RoleMaster && slices.Contains(s.AwaitingFounding, n.ID)
}
