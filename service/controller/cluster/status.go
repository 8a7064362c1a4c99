package cluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
	"github.com/kvm-operator/kvm-operator/pkg/workload"
)

// Conditions that sum others up, in the sense of kstatus.
const (
	// ConditionReady is True when every step is done.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator is at work or waits for something that comes by itself.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while only a person can help.
	ConditionStalled = "Stalled"
	// ConditionAvailable is True while the API of the workload cluster answers. Unlike Ready it says nothing about nodes and add-ons.
	ConditionAvailable = "Available"
	// ConditionLegacyFields is True when the spec sets fields that have lost their meaning.
	ConditionLegacyFields = "LegacyFieldsIgnored"
)

// conditionTypes names the condition of each handler.
var conditionTypes = map[string]string{
	"network":            "NetworksDistinct",
	"nodeindexstatus":    "IndexesAssigned",
	"release":            "VersionsResolved",
	"namespace":          snapshot.ConditionNamespace,
	"certificates":       "CertificatesReady",
	"randomkey":          "KeysReady",
	"serviceaccount":     "ServiceAccountReady",
	"clusterrolebinding": "RoleBindingsReady",
	"networkpolicy":      "NetworkPolicyReady",

	"poddisruptionbudget": "DisruptionBudgetsReady",

	"service":    "ServicesReady",
	"ingress":    "IngressesReady",
	"endpoints":  "EndpointsReady",
	"configmap":  "BootDataReady",
	"pvc":        "VolumesReady",
	"deployment": "NodesReady",
	"kubeconfig": "KubeconfigReady",
	"placement":  "MastersPlaced",

	"certificaterotation": "CertificatesCurrent",
	"vault":               "VaultReady",
	"etcdsnapshot":        "SnapshotsTaken",
	"etcdrestore":         "SnapshotRestored",
	"etcdretired":         "RetiredDataKept",

	"etcdmember":         "EtcdReady",
	"workload":           "WorkloadReachable",
	"bootstrap":          "BootstrapReady",
	"cni":                "PodNetworkInstalled",
	"kubeproxy":          "KubeProxyInstalled",
	"coredns":            "CoreDNSInstalled",
	"addonhealth":        "AddOnsAvailable",
	"certificaterequest": "RequestsDecided",
	"nodelabel":          "NodesLabelled",
	"nodereadiness":      "ReadinessReported",
	"node":               "StaleNodesRemoved",

	"terminateunhealthynodes": "UnhealthyNodesReplaced",
}

// status is the whole status that follows from a run of the chain.
func status(s *snapshot.Snapshot, results []chain.Result, now time.Time) v1alpha1.KVMConfigStatus {
	next := *s.Config.Status.DeepCopy()
	next.ObservedGeneration = s.Config.Generation
	next.Nodes = nodeStatuses(s, now)
	next.Retired = s.Retired
	next.MinoritySince = s.MinoritySince
	noteClaims(s, results, next.Nodes)
	if s.OwnsNamespace || next.Etcd == nil { // else it is lost, and this is what is left
		next.Etcd = &v1alpha1.EtcdStatus{Founders: s.Founders, Restored: s.Restore.DoneMark(), Ticket: s.FoundingTicket()}
	}
	next.Conditions = conditions(s, results, now)
	next.Cluster = legacyStatus(s, now)
	return next
}

// reconnects tells whether an operator that has just begun does not know yet what its predecessor knew. What that has
// stored stays until the first attempt to reach the workload cluster has ended, which is soon and wakes the controller.
func reconnects(s *snapshot.Snapshot, results []chain.Result) bool {
	storing := func(r chain.Result) bool { return r.Err == nil && r.Outcome.State == chain.StateStore }
	before := s.Config.Status
	return s.Workload.Reason == string(workload.Connecting) && before.ObservedGeneration == s.Config.Generation &&
		meta.IsStatusConditionTrue(before.Conditions, conditionTypes["workload"]) && !slices.ContainsFunc(results, storing)
}

// conditions keeps the times of those that did not change and drops those that nobody sets any more.
func conditions(s *snapshot.Snapshot, results []chain.Result, now time.Time) []metav1.Condition {
	wanted := fold(results, s.Config.DeletionTimestamp != nil)
	for _, r := range results {
		if r.Configured() {
			wanted = append(wanted, r.Condition(conditionTypes[r.Handler]))
		}
	}
	if available := available(s, results); available != nil {
		wanted = append(wanted, *available)
	}
	if legacy := legacyFields(s.Config.Spec); legacy != nil {
		wanted = append(wanted, *legacy)
	}
	if open := openEgress(s.Settings); open != nil {
		wanted = append(wanted, *open)
	}
	var kept []metav1.Condition
	for _, c := range wanted {
		if before := meta.FindStatusCondition(s.Config.Status.Conditions, c.Type); before != nil {
			kept = append(kept, *before)
		}
		c.ObservedGeneration = s.Config.Generation
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&kept, c)
	}
	return kept
}

// fold sums the results up. A step that only a person can mend goes before one that waits, and that before one that is
// blocked: the first reason is the one to look at.
func fold(results []chain.Result, deleting bool) []metav1.Condition {
	ready := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "every step is done"}
	reconciling := metav1.Condition{Type: ConditionReconciling, Status: metav1.ConditionFalse, Reason: "Done"}
	stalled := metav1.Condition{Type: ConditionStalled, Status: metav1.ConditionFalse, Reason: "NoProblem"}
	if problem := first(results, isProblem); problem != nil {
		stalled = problem.Condition(ConditionStalled)
		stalled.Status = metav1.ConditionTrue
	}
	if waiting := first(results, isWaiting); waiting != nil {
		reconciling = waiting.Condition(ConditionReconciling)
		reconciling.Status = metav1.ConditionTrue
	}
	for _, pick := range []func(chain.Result) bool{isProblem, isWaiting, notDone} {
		if r := first(results, pick); r != nil {
			ready = r.Condition(ConditionReady)
			ready.Status = metav1.ConditionFalse
			ready.Message = fmt.Sprintf("%s: %s", r.Handler, ready.Message)
			break
		}
	}
	if deleting {
		ready.Status = metav1.ConditionFalse
		if ready.Reason == "Ready" {
			ready.Reason, ready.Message = "Deleting", "the cluster is being deleted"
		}
	}
	return []metav1.Condition{ready, reconciling, stalled}
}

// available tells whether the API of the workload cluster serves now; nil where the operator does not look into that cluster.
func available(s *snapshot.Snapshot, results []chain.Result) *metav1.Condition {
	if !slices.ContainsFunc(results, func(r chain.Result) bool { return r.Handler == "workload" }) {
		return nil
	}
	c := metav1.Condition{Type: ConditionAvailable, Status: metav1.ConditionFalse, Reason: s.Workload.Reason, Message: s.Workload.Message}
	switch {
	case s.Workload.Connected:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Available", "the API of the workload cluster answers"
	case c.Reason == "":
		c.Status, c.Reason = metav1.ConditionUnknown, "NotAsked"
	}
	return &c
}

func first(results []chain.Result, pick func(chain.Result) bool) *chain.Result {
	for i := range results {
		if pick(results[i]) {
			return &results[i]
		}
	}
	return nil
}

func isProblem(r chain.Result) bool {
	_, ok := problem.As(r.Err)
	return ok
}

func isWaiting(r chain.Result) bool { return !r.Done() && len(r.BlockedBy) == 0 && !isProblem(r) }

func notDone(r chain.Result) bool { return !r.Done() }

// legacyFields tells the user which of the fields set do nothing, so that nobody debugs a network that is not there.
func legacyFields(spec v1alpha1.KVMConfigSpec) *metav1.Condition {
	if spec.KVM.Network.Flannel.VNI == 0 {
		return nil
	}
	return &metav1.Condition{
		Type: ConditionLegacyFields, Status: metav1.ConditionTrue, Reason: "FlannelNotUsed",
		Message: "spec.kvm.network.flannel is ignored: machines take over the addresses of their pods, no bridge is made on hosts",
	}
}

// Phases of a node.
const (
	phasePending     = "Pending"
	phaseStarting    = "Starting"
	phaseReady       = "Ready"
	phaseOutdated    = "Outdated"
	phaseTerminating = "Terminating"
)

func nodeStatuses(s *snapshot.Snapshot, now time.Time) []v1alpha1.NodeStatus {
	var list []v1alpha1.NodeStatus
	for _, n := range s.Nodes {
		st := nodeStatus(s, n, phase(n), n.Message)
		if s.Holds(n) {
			st.Message = snapshot.Sentence(snapshot.MessageHeld, st.Message)
		}
		st.Step, st.Since, st.Console = step(s.Config.Status.Nodes, n, now)
		list = append(list, st)
	}
	for _, n := range s.Retiring {
		list = append(list, nodeStatus(s, n, phaseTerminating, snapshot.MessageRetiring))
	}
	return departing(list, s.Departing())
}

func nodeStatus(s *snapshot.Snapshot, n snapshot.Node, phase, message string) v1alpha1.NodeStatus {
	st := v1alpha1.NodeStatus{
		ID: n.ID, Role: n.Role, Phase: phase, Message: snapshot.Sentence(message, snapshot.WhyHeld(n.Pods...)),
		EtcdHost: n.EtcdHost, EtcdClaim: n.EtcdClaim, EtcdMember: s.MarkToKeep(n),
	}
	if n.EtcdHost != "" {
		st.EtcdMark = n.EtcdMark
	}
	if pod := n.Pod(); pod != nil {
		st.Pod, st.IP, st.Host = pod.Name, pod.Status.PodIP, pod.Spec.NodeName
	}
	return st
}

// noteClaims keeps in mind on which volumes masters have data of etcd, from when their machines are made.
func noteClaims(s *snapshot.Snapshot, results []chain.Result, nodes []v1alpha1.NodeStatus) {
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

// departing adds to the nodes of the spec those that are not in it any more and whose machines are still there.
func departing(list []v1alpha1.NodeStatus, pods []corev1.Pod) []v1alpha1.NodeStatus {
	for _, pod := range pods {
		id, role := pod.Labels[key.LabelNode], pod.Labels[key.LabelApp]
		if statusOf(list, role, id) != nil {
			continue // by another pod
		}
		list = append(list, v1alpha1.NodeStatus{
			ID: id, Role: role, Phase: phaseTerminating, Message: snapshot.Sentence(snapshot.MessageLeaving, snapshot.WhyHeld(pod)),
			Pod: pod.Name, IP: pod.Status.PodIP, Host: pod.Spec.NodeName,
		})
	}
	return list
}

func phase(n snapshot.Node) string {
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
