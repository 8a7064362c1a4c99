// Package drain decides how a node pod that is being deleted is drained and released, so that its machine is shut down
// only once nothing depends on it.
//
// Everything here is pure: no client, no clock, no randomness. The state on which it decides is stored in the API, so a
// decision after a restart is the same.
package drain

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
)

const (
	// evictEvery is how often refused evictions are retried, and how often it is checked whether evicted pods are gone.
	evictEvery = 5 * time.Second
	// cordonSeen is when it is checked whether a Node is seen as cordoned.
	cordonSeen = time.Second
	// unreachableTimeout is how long a master waits for an API that has stopped responding. Only the control plane runs
	// on a master, and its machine may be what keeps the API from responding. Workers wait as long for an API that is
	// deleted with its namespace.
	unreachableTimeout = 2 * time.Minute
)

// Reason is why the machine is held or released, for the condition of its pod.
type Reason string

// Reasons to release the machine.
const (
	// Drained means that no pod that counts is left on the Node.
	Drained Reason = "Drained"
	// NodeMissing means that there is no Node, so nothing runs on it.
	NodeMissing Reason = "NodeMissing"
	// TimedOut means that pods are left, and that their time is over.
	TimedOut Reason = "DrainTimedOut"
	// ClusterDeleted means that the whole cluster is deleted, so its pods have no place to go.
	ClusterDeleted Reason = "ClusterDeleted"
	// HostShutsDown means that the host shuts down and does not wait.
	HostShutsDown Reason = "HostShutsDown"
	// Restoring means that a snapshot replaces the data of all masters, which have to be down for that.
	Restoring Reason = "Restoring"
	// NotWatched means that the operator does not connect to workload clusters.
	NotWatched Reason = "NotWatched"
	// MasterUnreachable means that the API has not responded for some time, and that this is one of its masters.
	MasterUnreachable Reason = "MasterUnreachable"
	// NamespaceDeleted means that the masters are deleted with their namespace, and that no master returns as long as
	// this machine stays.
	NamespaceDeleted Reason = "NamespaceDeleted"
	// GracePeriodOver means that the host is about to end the pod, regardless of the pods that are left.
	GracePeriodOver Reason = "GracePeriodOver"
)

// Reasons to hold it.
const (
	// Draining means that pods are left and are being evicted.
	Draining Reason = "Draining"
	// Unreachable means that the API does not respond, so pods cannot be evicted.
	Unreachable Reason = "ClusterUnreachable"
	// QuorumAtRisk means that etcd would lose quorum without this master.
	QuorumAtRisk Reason = "QuorumAtRisk"
	// ReleaseAnnounced announces that this master is about to be released, so that no other one is released at the same
	// time. The announcement may be withdrawn.
	ReleaseAnnounced Reason = "ReleaseAnnounced"
	// Releasing means that the release of this master is confirmed, and that its runner may have got the order.
	Releasing Reason = "Releasing"
	// HostStays means that a host that was about to shut down does not, so that the machine is held again, or runs
	// again.
	HostStays Reason = "HostStays"
	// ReleaseFailed means that the machine may be shut down, and that the request to its runner failed.
	ReleaseFailed Reason = "ReleaseFailed"
)

// Machine is what is known of a node pod that is being deleted, or whose host shuts down, and of its Node.
type Machine struct {
	// Stopped means that no container of the pod runs or will run: it has ended, never started, or was deleted by
	// force, which is how people tell Kubernetes that a pod is gone.
	Stopped bool
	// Released is the reason why the machine was released; empty while it is held.
	Released Reason
	// ClusterGone means that the KVMConfig is being deleted or does not exist.
	ClusterGone bool
	// Restoring means that the machine is a master's that has to be down while a snapshot replaces its data.
	Restoring bool
	// NamespaceGoes means that all pods of the cluster are deleted with their namespace, and that none is created in it
	// again.
	NamespaceGoes bool
	// HostShutsDown means that the kubelet of the host ends the pod.
	HostShutsDown bool
	// HostStays means that the host is Ready.
	HostStays bool
	// Watched means that the operator connects to workload clusters, and Connected that it is connected to this one.
	Watched, Connected bool
	// Silent is how long the operator has not been connected, as far as it knows: it starts over with each operator.
	Silent time.Duration
	// Trouble is why it is not connected, for a person; empty if that is not known.
	Trouble string
	// Master means that etcd runs in the machine. Masters is how many there are including this one, and Healthy how
	// many others are Ready, stay, see CountsForQuorum, and have a vote in etcd. If the operator is not connected to
	// the cluster, the readiness of their pods counts.
	Master           bool
	Masters, Healthy int
	// Serves means that the runner reports the machine of a master as healthy. Votes means that its member of etcd has
	// a vote and responds, or that no member was asked yet.
	Serves, Votes bool
	// Node is the Node; nil if there is none. Node and Pods, the pods on it, are known if Connected. Now is the time at
	// which they were read, by the clock of their API server.
	Node *corev1.Node
	Pods []corev1.Pod
	Now  time.Time
	// Waited is how long the machine has been held. Timeout is how long it may wait for pods; zero means without a
	// limit. Grace is how long it can be held before the host ends the pod; zero while the pod is not being deleted.
	Waited, Timeout, Grace time.Duration
}

// Decision is what to do next.
type Decision struct {
	// Finish means that the pod may be removed.
	Finish bool
	// Release means that the machine is shut down.
	Release bool
	// Cordon means that no more pods are to be scheduled to the Node.
	Cordon bool
	// Evict are the pods to evict, which are part of Left.
	Evict []corev1.Pod
	// Left are the pods that are waited for.
	Left []corev1.Pod
	// Reason and Message say why; Message is one sentence.
	Reason  Reason
	Message string
	// After is when to check again; zero means when something changes.
	After time.Duration
}

// Decide decides what to do next with a machine.
func Decide(m Machine) Decision {
	switch {
	case m.Stopped:
		return Decision{Finish: true}
	case m.Released != "":
		return Decision{Reason: m.Released, Message: "the guest is powered down"}
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
		return Decision{Release: true, Reason: NotWatched, Message: "the operator does not connect to workload clusters"}
	case m.Timeout > 0 && m.Waited >= m.Timeout:
		return Decision{Release: true, Reason: TimedOut, Message: fmt.Sprintf("the drain timeout of %s is over; remaining pods are shut down with the machine", m.Timeout)}
	case !m.Connected:
		return decideUnreachable(m)
	case m.Node == nil:
		return Decision{Release: true, Reason: NodeMissing, Message: "there is no Node of this name"}
	}
	left, evict := remaining(m.Node, m.Pods, m.Now)
	switch {
	case len(left) == 0 && uncordoned(m):
		// Until it is cordoned, pods may be scheduled to it that were not seen.
		return Decision{Cordon: true, Reason: Draining, After: cordonSeen, Message: "no pod is left; the Node is cordoned first"}
	case len(left) == 0:
		return Decision{Release: true, Reason: Drained, Message: "no pod is left to evict"}
	}
	return Decision{
		Cordon: uncordoned(m), Evict: evict, Left: left, Reason: Draining, After: evictEvery, Message: "waits for " + names(left),
	}
}

// Unconditional returns whether the machine is released regardless of pods, of the quorum of etcd and of what Services
// send to it.
func (m Machine) Unconditional() bool {
	reason, _ := unconditional(m)
	return reason != ""
}

// unconditional returns the reasons that depend neither on pods nor on the quorum of etcd.
func unconditional(m Machine) (Reason, string) {
	switch {
	case m.ClusterGone:
		return ClusterDeleted, "the whole cluster is deleted"
	case m.Restoring:
		return Restoring, "its etcd data is being replaced with a snapshot"
	case m.HostShutsDown:
		return HostShutsDown, "the host shuts down"
	case m.Grace > 0 && m.Waited >= m.Grace:
		return GracePeriodOver, "the grace period of the pod is about to end; the machine is powered down before the host kills it"
	}
	return "", ""
}

// decideUnreachable decides about a cluster whose API does not respond.
func decideUnreachable(m Machine) Decision {
	if m.Master && m.Silent >= unreachableTimeout {
		return Decision{Release: true, Reason: MasterUnreachable, Message: "the API has not answered for " + unreachableTimeout.String()}
	}
	if m.NamespaceGoes && m.Silent >= unreachableTimeout {
		return Decision{Release: true, Reason: NamespaceDeleted, Message: "the namespace is being deleted, and the workload API has not answered for " + unreachableTimeout.String()}
	}
	next := evictEvery
	if m.Master || m.NamespaceGoes {
		next = min(unreachableTimeout-m.Silent, evictEvery)
	}
	message := "no pod can be evicted because the API of the workload cluster does not answer"
	if m.Trouble != "" {
		message += ": " + m.Trouble
	}
	return Decision{Reason: Unreachable, After: max(next, time.Second), Message: message}
}

// needed returns whether etcd would lose quorum without this master. A master that is not Ready does not count, unless
// its member of etcd responds; if its Node is not known or was deleted, the report of its runner counts. If the
// namespace is being deleted the others go too, and no master returns before they have gone.
func needed(m Machine) bool {
	part := m.Serves
	if m.Node != nil {
		part = joining.Ready(m.Node)
	}
	return m.Master && !m.NamespaceGoes && m.Masters > 1 && (part || m.Votes) && m.Healthy <= m.Masters/2
}

// NeedsAnnouncement returns whether the release of the machine removes a member that may count for the quorum of etcd,
// so that it has to be announced.
func (d Decision) NeedsAnnouncement(m Machine) bool {
	return d.Release && !m.Unconditional() && m.Master && m.Masters > 1
}

// IgnoresQuorum returns whether a master is released regardless of the quorum, so that it has to be recorded before
// that it does not stay.
func (d Decision) IgnoresQuorum(m Machine) bool {
	return d.Release && m.Master && (d.Reason == HostShutsDown || d.Reason == GracePeriodOver)
}

func uncordoned(m Machine) bool { return m.Connected && m.Node != nil && !m.Node.Spec.Unschedulable }

// named is how many pods a message names.
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
