// Package nodereadiness is the handler of the readiness gate of node pods: a pod is Ready if its Node is.
package nodereadiness

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Reporter sets a condition of a pod on the management cluster.
type Reporter interface {
	SetPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error
}

// New returns the handler.
func New(r Reporter) chain.Handler[*state.Machines] { return handler{r} }

type handler struct{ reporter Reporter }

// Name returns the handler's name.
func (handler) Name() string { return "nodereadiness" }

// EnsureCreated copies the readiness of Nodes to their pods. While the workload cluster does not respond, pods keep
// their conditions, because an API that is down says nothing about its nodes. For masters it is a condition and not a
// readiness gate, because their own API server reports it; the condition records since when their Nodes have their
// status.
func (h handler) EnsureCreated(ctx context.Context, m *state.Machines) (chain.Outcome, error) {
	if !m.Workload.Connected {
		return chain.Done(), nil
	}
	var errs []error
	for _, n := range m.Nodes {
		for i := range n.Pods {
			pod := &n.Pods[i]
			if condition := joining.NodeReady(m.Workload.Node(pod.Name)); relevant(pod, condition) {
				errs = append(errs, h.reporter.SetPodCondition(ctx, pod, condition))
			}
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// relevant returns whether the condition has to be written: not for a pod whose Node does not exist yet, and not if the
// condition has not changed.
func relevant(pod *corev1.Pod, condition corev1.PodCondition) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionNodeReady {
			return joining.Changed(pod, condition)
		}
	}
	return condition.Reason != joining.ReasonNodeMissing
}

// EnsureDeleted has nothing to do.
func (handler) EnsureDeleted(context.Context, *state.Machines) (chain.Outcome, error) {
	return chain.Done(), nil
}
