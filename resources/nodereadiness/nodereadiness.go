// Package nodereadiness is the handler of the readiness gate of node pods: a pod is Ready when its Node is.
package nodereadiness

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Reporter sets a condition of a pod on the management cluster.
type Reporter interface {
	SetPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error
}

// New makes the handler.
func New(r Reporter) chain.Handler[*cluster.Snapshot] { return handler{r} }

type handler struct{ reporter Reporter }

// Name is the handler's name.
func (handler) Name() string { return "nodereadiness" }

// EnsureCreated copies the readiness of Nodes to their pods. While the workload cluster does not answer, pods keep what they
// have: an API that is away says nothing about its nodes. For masters it is a condition and no gate, for the API server that could
// tell is their own; it keeps since when their Nodes are as they are.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if !s.Workload.Connected {
		return chain.Done(), nil
	}
	var errs []error
	for _, n := range s.Nodes {
		for i := range n.Pods {
			pod := &n.Pods[i]
			if condition := joining.NodeReady(s.Workload.Node(pod.Name)); relevant(pod, condition) {
				errs = append(errs, h.reporter.SetPodCondition(ctx, pod, condition))
			}
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// relevant spares a write for a pod whose Node does not exist yet, and for one whose status alone counts.
func relevant(pod *corev1.Pod, condition corev1.PodCondition) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionNodeReady {
			return joining.Changed(pod, condition)
		}
	}
	return condition.Reason != joining.ReasonNodeMissing
}

// EnsureDeleted has nothing to do.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
