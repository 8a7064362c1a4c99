package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// status returns the whole status that follows from a run of the chain.
func status(s *state.Cluster, results []chain.Result, now time.Time) v1alpha1.KVMConfigStatus {
	next := *s.Config.Status.DeepCopy()
	if s.Config.DeletionTimestamp == nil {
		next.KVM = &v1alpha1.LegacyKVMStatus{NodeIndexes: s.Indexes}
		if s.VersionsErr == nil {
			next.Versions = new(s.Versions)
		}
	}
	next.ObservedGeneration = s.Config.Generation
	next.Nodes = nodeStatuses(s, now)
	next.Retired = s.Retired
	next.MinoritySince = s.MinoritySince
	noteClaims(s, results, next.Nodes)
	if s.OwnsNamespace || next.Etcd == nil { // else the namespace was lost, and this status is the only record
		next.Etcd = &v1alpha1.EtcdStatus{Founders: s.Founders, Restored: s.Restore.LastRestoreRecord(), Ticket: s.FoundingToken()}
	}
	next.Conditions = conditions(s, results, now)
	next.Cluster = legacyStatus(s, now)
	return next
}

// sameAsStored compares as equality.Semantic does, except that times are equal within a second, because they are stored
// without fractions.
var sameAsStored = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }); err != nil {
		panic(err)
	}
	return e
}()

// sameStatus returns whether two statuses are equal. The order of conditions does not matter, because server-side apply
// keeps the order in which their owners first applied them.
func sameStatus(a, b v1alpha1.KVMConfigStatus) bool {
	byType := func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) }
	a.Conditions = slices.SortedFunc(slices.Values(a.Conditions), byType)
	b.Conditions = slices.SortedFunc(slices.Values(b.Conditions), byType)
	return sameAsStored.DeepEqual(a, b)
}

// reconnects returns whether an operator that has just started does not yet know what its predecessor knew. The status
// that the predecessor stored stays until the first attempt to connect to the workload cluster has ended, which is soon
// and wakes the controller.
func reconnects(s *state.Cluster, results []chain.Result) bool {
	storing := func(r chain.Result) bool { return r.Err == nil && r.Outcome.State == chain.StateStore }
	before := s.Config.Status
	return s.Workload.Reason == string(workload.Connecting) && before.ObservedGeneration == s.Config.Generation &&
		meta.IsStatusConditionTrue(before.Conditions, ConditionAvailable) && !slices.ContainsFunc(results, storing)
}

// Phases of a node.
const (
	phasePending     = "Pending"
	phaseStarting    = "Starting"
	phaseReady       = "Ready"
	phaseOutdated    = "Outdated"
	phaseTerminating = "Terminating"
)

func nodeStatuses(s *state.Cluster, now time.Time) []v1alpha1.NodeStatus {
	var list []v1alpha1.NodeStatus
	for _, n := range s.Nodes {
		st := nodeStatus(s, n, phase(n), n.Message)
		if s.Holds(n) {
			st.Message = state.Sentence(state.MessageHeld, st.Message)
		}
		st.Step, st.Since, st.Console = step(s.Config.Status.Nodes, n, now)
		list = append(list, st)
	}
	for _, n := range s.Retiring {
		list = append(list, nodeStatus(s, n, phaseTerminating, state.MessageRetiring))
	}
	return departing(list, s.RemovedPods())
}

func nodeStatus(s *state.Cluster, n state.Node, phase, message string) v1alpha1.NodeStatus {
	st := v1alpha1.NodeStatus{
		ID: n.ID, Role: n.Role, Phase: phase, Message: state.Sentence(message, state.WhyHeld(n.Pods...)),
		EtcdHost: cmp.Or(n.EtcdHost, n.FoundHost), EtcdClaim: n.EtcdClaim, EtcdMember: s.MemberToRecord(n),
	}
	if st.EtcdHost != "" {
		st.EtcdMark = n.EtcdMark
	}
	if pod := n.Pod(); pod != nil {
		st.Pod, st.IP, st.Host = pod.Name, pod.Status.PodIP, pod.Spec.NodeName
	}
	return st
}

// noteClaims records which volumes have the etcd data of masters, once their machines are created.
func noteClaims(s *state.Cluster, results []chain.Result, nodes []v1alpha1.NodeStatus) {
	made := func(r chain.Result) bool { return r.Handler == "deployment" && len(r.BlockedBy) == 0 && r.Err == nil }
	if !s.EtcdOnVolume() || !slices.ContainsFunc(results, made) {
		return
	}
	for i := range nodes {
		if nodes[i].Role == key.RoleMaster {
			nodes[i].EtcdClaim = key.EtcdClaimName(s.ID(), nodes[i].ID)
		}
	}
}

// departing adds to the nodes of the spec those that are no longer in it and whose pods still exist.
func departing(list []v1alpha1.NodeStatus, pods []corev1.Pod) []v1alpha1.NodeStatus {
	for _, pod := range pods {
		id, role := pod.Labels[key.LabelNode], pod.Labels[key.LabelApp]
		if state.StatusOf(list, role, id) != nil {
			continue // another pod of the node is in the list
		}
		list = append(list, v1alpha1.NodeStatus{
			ID: id, Role: role, Phase: phaseTerminating, Message: state.Sentence(state.MessageLeaving, state.WhyHeld(pod)),
			Pod: pod.Name, IP: pod.Status.PodIP, Host: pod.Spec.NodeName,
		})
	}
	return list
}

func phase(n state.Node) string {
	pod := n.Pod()
	switch {
	case n.Hash != "" && n.Outdated():
		return phaseOutdated
	case n.Ready:
		return phaseReady
	case pod == nil:
		return phasePending
	case pod.DeletionTimestamp != nil:
		return phaseTerminating
	case pod.Status.Phase == corev1.PodPending:
		return phasePending
	default:
		return phaseStarting
	}
}
