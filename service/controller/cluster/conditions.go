package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// Conditions that summarize others, in the sense of kstatus.
const (
	// ConditionReady is True when every step of every controller is done.
	ConditionReady = state.ConditionReady
	// ConditionStalled exists, and is True, while only a person can fix the problem.
	ConditionStalled = reconciler.ConditionStalled
	// ConditionAvailable is True while the API of the workload cluster responds. Unlike Ready it does not depend on
	// nodes and add-ons.
	ConditionAvailable = "Available"
)

// Conditions of the areas of a cluster.
const (
	// ConditionVersions has the versions in use and the reason why others are not.
	ConditionVersions = "VersionsResolved"
	// ConditionInfrastructure is about the objects around the node pods: networks, Services, Ingresses, policies,
	// accounts and volumes.
	ConditionInfrastructure = "InfrastructureReady"
	// ConditionCertificates is about certificates, keys and the kubeconfig.
	ConditionCertificates = state.ConditionCertificates
	// ConditionNodes is about the nodes, from their boot data to their Nodes.
	ConditionNodes = "NodesReady"
	// ConditionEtcd is about the members of etcd, a restore, and retired data.
	ConditionEtcd = "EtcdReady"
	// ConditionSnapshots is about snapshots of etcd. It exists only if snapshots are configured.
	ConditionSnapshots = state.ConditionSnapshots
	// ConditionJoined is about what nodes need to join: RBAC, certificates and labels.
	ConditionJoined = "NodesJoined"
	// ConditionAddOns is about the add-ons in the workload cluster.
	ConditionAddOns = "AddOnsReady"
)

// areas are the conditions that summarize handlers, in the order in which they are written.
var areas = []string{
	ConditionVersions, state.ConditionNamespace, ConditionInfrastructure, ConditionCertificates, ConditionNodes, ConditionEtcd, ConditionSnapshots,
	ConditionJoined, ConditionAddOns,
}

// conditions keeps the transition times of conditions that did not change and drops those that are no longer set.
func conditions(s *state.Cluster, results []chain.Result, now time.Time) []metav1.Condition {
	deleting := s.Config.DeletionTimestamp != nil
	var others []metav1.Condition
	if !deleting {
		others = ofOthers(s.Config.Status.Conditions)
	}
	wanted := reconciler.Summarize(results, others, deleting)
	if available := available(s, results); available != nil {
		wanted = append(wanted, *available)
	}
	all := append(slices.Clone(results), notes(s)...)
	for _, area := range areas {
		if c, ok := reconciler.Condition(area, of(area, all)); ok {
			wanted = append(wanted, c)
		}
	}
	return append(reconciler.Merge(s.Config.Status.Conditions, wanted, s.Config.Generation, now), others...)
}

// of returns the results of the handlers of an area.
func of(area string, results []chain.Result) []chain.Result {
	return slices.DeleteFunc(slices.Clone(results), func(r chain.Result) bool { return r.Area != area })
}

// ofOthers returns the conditions that other controllers write.
func ofOthers(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool { return !slices.Contains(state.ConditionsOfOthers, c.Type) })
}

// available returns whether the API of the workload cluster is available now; nil if the operator does not connect to
// that cluster.
func available(s *state.Cluster, results []chain.Result) *metav1.Condition {
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

// notes are what a condition of an area reports in addition to the results of its handlers.
func notes(s *state.Cluster) []chain.Result {
	return append(legacyFields(s.Config.Spec), openEgress(s.Settings)...)
}

// note returns a result that only has a message.
func note(handler, area, reason, message string) []chain.Result {
	return []chain.Result{{Handler: handler, Area: area, Outcome: chain.Outcome{State: chain.StateDone, Reason: reason, Message: message}}}
}

// legacyFields reports fields that are set but ignored, so that a user does not debug a network that does not exist.
func legacyFields(spec v1alpha1.KVMConfigSpec) []chain.Result {
	if spec.KVM.Network.Flannel.VNI == 0 {
		return nil
	}
	return note("network", ConditionInfrastructure, "FlannelNotUsed",
		"spec.kvm.network.flannel is ignored: machines take over the addresses of their pods, no bridge is made on hosts")
}

// Store writes the status if it differs. The resource version that was read is a precondition, so that decisions on
// outdated data, especially an index, are never stored. A reconcile that took too long is reported too.
func (r *Reconciler) Store(ctx context.Context, config *v1alpha1.KVMConfig, s *state.Cluster, results []chain.Result) error {
	if reconnects(s, results) {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
	}
	updated := config.DeepCopy()
	updated.Status = status(s, results, r.Clock.Now())
	r.showConsoles(ctx, s.ID(), updated.Status.Nodes)
	boundConsoles(updated.Status.Nodes)
	if sameStatus(config.Status, updated.Status) {
		return nil
	}
	stored, err := r.store(ctx, config, updated)
	if stored {
		r.tell(ctx, config, updated)
	}
	return err
}

// fieldOwner owns the status, except for the conditions of the other controllers.
const fieldOwner = key.Operator + "-" + Name

// store applies the status. If a user or another client wrote more than that, or a part of what is to go, store removes
// it. stored says whether the status was written.
func (r *Reconciler) store(ctx context.Context, before, config *v1alpha1.KVMConfig) (stored bool, err error) {
	applied, err := r.engine.ApplyStatus(ctx, fieldOwner, config, state.ConditionsOfOthers)
	if apierrors.IsInvalid(err) {
		return r.engine.CorrectStatus(ctx, fieldOwner, before, config)
	}
	if err != nil || applied == nil {
		return false, err
	}
	there, corrected := applied.(*v1alpha1.KVMConfig), applied.DeepCopyObject().(*v1alpha1.KVMConfig)
	if sameStatus(there.Status, config.Status) {
		return true, nil
	}
	corrected.Status = config.Status
	_, err = r.engine.CorrectStatus(ctx, fieldOwner, there, corrected)
	return true, err
}
