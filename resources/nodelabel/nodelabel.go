// Package nodelabel is the handler of the labels that kubelets may not give themselves.
package nodelabel

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Labeller adds labels to a Node of a workload cluster.
type Labeller interface {
	LabelNode(ctx context.Context, node *corev1.Node, labels map[string]string) error
}

// New makes the handler; labeller finds who writes to the workload cluster of a snapshot, nil when nobody can.
func New(labeller func(*cluster.Snapshot) Labeller) chain.Handler[*cluster.Snapshot] {
	return handler{labeller}
}

type handler struct {
	labeller func(*cluster.Snapshot) Labeller
}

// Name is the handler's name.
func (handler) Name() string { return "nodelabel" }

// EnsureCreated labels the Nodes of node pods, each with the version that its pod was made for.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	labeller := h.labeller(s)
	if labeller == nil {
		return chain.Done(), nil
	}
	var errs []error
	for _, n := range s.Nodes {
		for _, pod := range n.Pods {
			node := s.Workload.Node(pod.Name)
			if node == nil {
				continue
			}
			if missing := joining.Missing(node, joining.Labels(s.ID(), n.Role, pod.Labels[key.LabelVersion])); missing != nil {
				errs = append(errs, labeller.LabelNode(ctx, node, missing))
			}
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// EnsureDeleted has nothing to do.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
