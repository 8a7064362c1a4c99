// Package drain decides how a node pod that is being deleted is emptied and let go, so that its machine is powered down only
// once nothing depends on it any more.
//
// Everything here is pure: no client, no clock, no randomness. What is decided on stands in the API; whoever decides again
// after a restart comes to the same decision.
package drain

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

const (
	// evictEvery is how often what refused to go is asked again, and how often it is looked whether what was asked has gone.
	evictEvery = 5 * time.Second
	// cordonSeen is when it is looked whether a Node is seen to be cordoned.
	cordonSeen = time.Second
	// blindMaster is how long a master waits for an API that has stopped to answer. Nothing but its own control plane runs on it
	// that must not end with it, and its machine may be what keeps the API from answering. Workers wait as long for one that goes with its namespace.
	blindMaster = 2 * time.Minute
)

// Reason is why the machine is kept or let go, for the condition of its pod.
type Reason string

// Reasons to let the machine go.
const (
	// Drained: no pod that counts is left on the Node.
	Drained Reason = "Drained"
	// NodeMissing: there is no Node, so nothing runs on it.
	NodeMissing Reason = "NodeMissing"
	// TimedOut: pods are left, and the time for them is over.
	TimedOut Reason = "DrainTimedOut"
	// ClusterDeleted: the whole cluster goes, and there is nowhere to go for its pods.
	ClusterDeleted Reason = "ClusterDeleted"
	// HostShutsDown: the host goes down and waits for nobody.
	HostShutsDown Reason = "HostShutsDown"
	// Restoring: a snapshot takes the place of the data of all masters, which are down meanwhile.
	Restoring Reason = "Restoring"
	// NotWatched: the operator does not look into workload clusters.
	NotWatched Reason = "NotWatched"
	// MasterUnreachable: the API has not answered for a while, and this is one of its masters.
	MasterUnreachable Reason = "MasterUnreachable"
	// NamespaceDeleted: the masters go with their namespace, and as long as this machine stays no master comes back.
	NamespaceDeleted Reason = "NamespaceDeleted"
	// GracePeriodOver: the host ends the pod in a moment, whatever becomes of what is left.
	GracePeriodOver Reason = "GracePeriodOver"
)

// Reasons to keep it.
const (
	// Draining: pods are left that are asked to go.
	Draining Reason = "Draining"
	// Unreachable: the API does not answer, so nothing can be asked to go.
	Unreachable Reason = "ClusterUnreachable"
	// QuorumAtRisk: without this master etcd would lose its majority.
	QuorumAtRisk Reason = "QuorumAtRisk"
	// LettingGo announces that this master is about to be let go, so that no other one is at the same time. The announcement may be
	// taken back.
	LettingGo Reason = "LettingGo"
	// Releasing: it is certain that this master goes, and its runner may have been told.
	Releasing Reason = "Releasing"
	// ReleaseFailed: the machine may go, and its runner cannot be told, or does not answer.
	ReleaseFailed Reason = "ReleaseFailed"
)

// Machine is what is known of a node pod that is being deleted, or whose host goes down, and of its Node.
type Machine struct {
	// Stopped says that no container of the pod runs or will run: it has ended, never began, or was deleted by force, which is
	// how Kubernetes is told that a pod is gone.
	Stopped bool
	// LetGo is the reason why the machine has been let go; empty while it is held.
	LetGo Reason
	// ClusterGone says that the KVMConfig is being deleted or does not exist.
	ClusterGone bool
	// Restoring says that the machine is a master's, which has to be down for a snapshot to take the place of its data.
	Restoring bool
	// NamespaceGoes says that all pods of the cluster go with their namespace, and none comes back in it.
	NamespaceGoes bool
	// HostShutsDown says that the kubelet of the host ends the pod.
	HostShutsDown bool
	// Watched says that the operator looks into workload clusters, Connected that it sees this one.
	Watched, Connected bool
	// Silent is how long it has not been seen, as far as this operator knows: it begins anew with each.
	Silent time.Duration
	// Trouble is why it is not seen, for a person; empty when that is not known.
	Trouble string
	// Master says that etcd runs in the machine. Masters is how many there are with this one, Healthy how many others are
	// Ready, stay, see Stays, and have a vote in etcd: where the cluster is not seen, as their own machines say.
	Master           bool
	Masters, Healthy int
	// Serves says that the machine of a master does, by its own account; Votes that its member of etcd has a vote and answers, or that this
	// will be known in a moment.
	Serves, Votes bool
	// Node is the Node; nil when there is none. It and Pods, which are those on it, are known when Connected. Now is the time at which they
	// were, by the clock of their API server.
	Node *corev1.Node
	Pods []corev1.Pod
	Now  time.Time
	// Waited is how long the machine has been held. Timeout is how long pods may make it wait; zero: for ever. Grace is how long it
	// can be held before the host ends the pod; zero while nobody has asked for that.
	Waited, Timeout, Grace time.Duration
}

// Decision is what to do next.
type Decision struct {
	// Finish: the pod may go.
	Finish bool
	// Release: the machine is powered down.
	Release bool
	// Cordon: no pod is to come to the Node any more.
	Cordon bool
	// Evict are the pods to ask to go, which are part of Left.
	Evict []corev1.Pod
	// Left are the pods that are waited for.
	Left []corev1.Pod
	// Reason and Message tell why; Message is one sentence.
	Reason  Reason
	Message string
	// After is when to look again; zero: when something changes.
	After time.Duration
}

// Decide decides what to do next with a machine.
func Decide(m Machine) Decision {
	switch {
	case m.Stopped:
		return Decision{Finish: true}
	case m.LetGo != "":
		return Decision{Reason: m.LetGo, Message: "the guest is powered down"}
	}
	if reason, message := unconditional(m); reason != "" {
		return Decision{Release: true, Reason: reason, Message: message}
	}
	if needed(m) {
		return Decision{Cordon: uncordoned(m), Reason: QuorumAtRisk, After: evictEvery, Message: fmt.Sprintf(
			"without this master %d of %d would be healthy voters, and etcd would lose quorum", m.Healthy, m.Masters)}
	}
	switch {
	case !m.Watched:
		return Decision{Release: true, Reason: NotWatched, Message: "the operator does not look into workload clusters"}
	case m.Timeout > 0 && m.Waited >= m.Timeout:
		return Decision{Release: true, Reason: TimedOut, Message: fmt.Sprintf("%s are over, what is left is powered down with the machine", m.Timeout)}
	case !m.Connected:
		return blind(m)
	case m.Node == nil:
		return Decision{Release: true, Reason: NodeMissing, Message: "there is no Node of this name"}
	}
	left, evict := remaining(m.Node, m.Pods, m.Now)
	switch {
	case len(left) == 0 && uncordoned(m):
		// Until it is, pods may come that nobody has seen.
		return Decision{Cordon: true, Reason: Draining, After: cordonSeen, Message: "no pod is left, and its Node is cordoned first"}
	case len(left) == 0:
		return Decision{Release: true, Reason: Drained, Message: "no pod is left that could go elsewhere"}
	}
	return Decision{
		Cordon: uncordoned(m), Evict: evict, Left: left, Reason: Draining, After: evictEvery, Message: "waits for " + names(left),
	}
}

// unconditional are the reasons that ask neither pods nor the majority of etcd.
func unconditional(m Machine) (Reason, string) {
	switch {
	case m.ClusterGone:
		return ClusterDeleted, "the whole cluster is deleted"
	case m.Restoring:
		return Restoring, "a snapshot of etcd takes the place of its data"
	case m.HostShutsDown:
		return HostShutsDown, "the host shuts down"
	case m.Grace > 0 && m.Waited >= m.Grace:
		return GracePeriodOver, "the grace period of the pod ends, and the host its machine with it; it is powered down before"
	}
	return "", ""
}

// blind is about a cluster that does not answer.
func blind(m Machine) Decision {
	if m.Master && m.Silent >= blindMaster {
		return Decision{Release: true, Reason: MasterUnreachable, Message: "the API has not answered for " + blindMaster.String()}
	}
	if m.NamespaceGoes && m.Silent >= blindMaster {
		return Decision{Release: true, Reason: NamespaceDeleted, Message: "the namespace is being deleted, and the workload API has not answered for " + blindMaster.String()}
	}
	next := evictEvery
	if m.Master || m.NamespaceGoes {
		next = min(blindMaster-m.Silent, evictEvery)
	}
	message := "no pod can be evicted because the API of the workload cluster does not answer"
	if m.Trouble != "" {
		message += ": " + m.Trouble
	}
	return Decision{Reason: Unreachable, After: max(next, time.Second), Message: message}
}

// needed says whether etcd would lose its majority with this master. One that is not Ready itself is no part of it, unless its member of
// etcd answers; where its Node is not seen, or somebody has deleted it, what its machine says counts. With the namespace the others go, too, and nobody
// comes back before they have.
func needed(m Machine) bool {
	part := m.Serves
	if m.Node != nil {
		part = joining.Ready(m.Node)
	}
	return m.Master && !m.NamespaceGoes && m.Masters > 1 && (part || m.Votes) && m.Healthy <= m.Masters/2
}

// Announced says whether letting the machine go takes a member from those of which etcd needs a majority, so that it has to be
// announced.
func (d Decision) Announced(m Machine) bool {
	reason, _ := unconditional(m)
	return d.Release && reason == "" && m.Master && m.Masters > 1
}

// Sudden says that a master is let go whatever becomes of the majority, so that it has to be written down before that it does not stay.
func (d Decision) Sudden(m Machine) bool {
	return d.Release && m.Master && (d.Reason == HostShutsDown || d.Reason == GracePeriodOver)
}

func uncordoned(m Machine) bool { return m.Connected && m.Node != nil && !m.Node.Spec.Unschedulable }

// named is how many pods are named.
const named = 3

func names(pods []corev1.Pod) string {
	var list []string
	for _, p := range pods[:min(len(pods), named)] {
		list = append(list, p.Namespace+"/"+p.Name)
	}
	text := strings.Join(list, ", ")
	if more := len(pods) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
