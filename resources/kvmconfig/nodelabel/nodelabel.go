// Package nodelabel is the handler of the labels that kubelets may not set on their own Nodes.
package nodelabel

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Labeler adds labels to a Node of a workload cluster.
type Labeler interface {
	LabelNode(ctx context.Context, node *corev1.Node, labels map[string]string) error
}

// New returns the handler. labeler returns the writer for a workload cluster, or nil when there is no
// connection.
func New(labeler func(*state.Cluster) Labeler) chain.Handler[*state.Cluster] {
	return handler{labeler}
}

type handler struct {
	labeler func(*state.Cluster) Labeler
}

// Name is the handler's name.
func (handler) Name() string { return "nodelabel" }

// EnsureCreated labels the Nodes of node pods with the version that their pod was created for.
func (h handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	labeler := h.labeler(s)
	if labeler == nil {
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
				errs = append(errs, labeler.LabelNode(ctx, node, missing))
			}
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
