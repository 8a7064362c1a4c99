// Package node is the handler of Nodes whose machines are gone. A pod that replaces another one has another name, and so has its
// Node; nobody but the operator knows that the old one will not come back.
package node

import (
	"context"
	"errors"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/drain"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

// Remover removes a Node of a workload cluster.
type Remover interface {
	DeleteNode(ctx context.Context, node *corev1.Node) error
}

// New makes the handler. live reads from the management cluster itself; remover finds who writes to the workload cluster of a
// snapshot, nil when nobody can.
func New(live client.Reader, remover func(*cluster.Snapshot) Remover) chain.Handler[*cluster.Snapshot] {
	return handler{live, remover}
}

type handler struct {
	live    client.Reader
	remover func(*cluster.Snapshot) Remover
}

// Name is the handler's name.
func (handler) Name() string { return "node" }

// EnsureCreated removes the Nodes that are stale. The cache may be late, so the API server has the last word on a pod: while
// there is one, its finalizer stands for a machine that may run.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	remover := h.remover(s)
	if remover == nil {
		return chain.Done(), nil
	}
	var errs []error
	for _, n := range Stale(s.ID(), s.Workload.Nodes, s.NodePods()) {
		err := h.live.Get(ctx, client.ObjectKey{Namespace: s.Namespace(), Name: n.Name}, &corev1.Pod{})
		switch {
		case err == nil:
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, microerror.Mask(err))
		default:
			errs = append(errs, remover.DeleteNode(ctx, n))
		}
	}
	return chain.Done(), errors.Join(errs...)
}

// Stale are the Nodes that belong to node pods of the cluster, that are not Ready and whose pods do not exist. One that is Ready without a pod
// runs somewhere, whatever the management cluster says.
func Stale(cluster string, nodes []corev1.Node, pods []corev1.Pod) []*corev1.Node {
	alive := map[string]bool{}
	for _, p := range pods {
		alive[p.Name] = true
	}
	var stale []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if joining.Ours(n, cluster) && n.DeletionTimestamp == nil && !alive[n.Name] && !drain.Ready(n) {
			stale = append(stale, n)
		}
	}
	return stale
}

// EnsureDeleted has nothing to do: the workload cluster goes as a whole.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
