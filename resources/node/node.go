// Package node is the handler of Nodes whose machines are gone. A pod that replaces another one has another name, and so has its
// Node; nobody but the operator knows that the old one will not come back.
package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

// Remover removes a Node of a workload cluster.
type Remover interface {
	DeleteNode(ctx context.Context, node *corev1.Node) error
}

// Witness knows for sure whether there is a pod on the management cluster that has not ended.
type Witness interface {
	PodRuns(ctx context.Context, namespace, name string) (bool, error)
}

// New makes the handler; remover finds who writes to the workload cluster of a snapshot, nil when nobody can.
func New(w Witness, remover func(*cluster.Snapshot) Remover) chain.Handler[*cluster.Snapshot] {
	return handler{w, remover}
}

type handler struct {
	witness Witness
	remover func(*cluster.Snapshot) Remover
}

// Name is the handler's name.
func (handler) Name() string { return "node" }

// EnsureCreated removes the Nodes that are stale. The cache may be late, so the API server has the last word on a pod: while
// there is one, its finalizer stands for a machine that may run.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	done := strays(Strays(s.Workload.Nodes, s.NodePods()))
	remover := h.remover(s)
	if remover == nil {
		return done, nil
	}
	var errs []error
	for _, n := range Stale(s.ID(), s.Workload.Nodes, s.NodePods()) {
		runs, err := h.witness.PodRuns(ctx, s.Namespace(), n.Name)
		if err == nil && !runs {
			err = remover.DeleteNode(ctx, n)
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// strays tells of Nodes that are Ready without a pod: a machine that the management cluster has forgotten, or somebody who has kept the
// certificate of a node that was removed. It holds nothing up, because a pod that was deleted by force leaves such a Node for a while.
func strays(names []string) chain.Outcome {
	done := chain.Done()
	if len(names) == 0 {
		return done
	}
	const shown = 5
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	done.Reason, done.Message = "NodesWithoutPods", "Ready in the workload cluster, without a node pod: "+text+"; find who runs there, or delete them"
	return done
}

// Strays are the names of the Nodes that are Ready and whose pods do not exist or have ended, whatever their labels: who registers a Node once more
// leaves out those of the operator.
func Strays(nodes []corev1.Node, pods []corev1.Pod) []string {
	alive := living(pods)
	var names []string
	for i := range nodes {
		n := &nodes[i]
		if n.DeletionTimestamp == nil && !alive[n.Name] && joining.Ready(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// living says which pods have not ended.
func living(pods []corev1.Pod) map[string]bool {
	alive := map[string]bool{}
	for i := range pods {
		alive[pods[i].Name] = !joining.Ended(&pods[i])
	}
	return alive
}

// Stale are the Nodes that belong to node pods of the cluster, that are not Ready and whose pods do not exist or have ended: a host that goes down
// leaves pods behind that never run again, and that nobody deletes. One that is Ready without a pod runs somewhere, whatever the management
// cluster says.
func Stale(cluster string, nodes []corev1.Node, pods []corev1.Pod) []*corev1.Node {
	alive := living(pods)
	var stale []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if joining.Ours(n, cluster) && n.DeletionTimestamp == nil && !alive[n.Name] && !joining.Ready(n) {
			stale = append(stale, n)
		}
	}
	return stale
}

// EnsureDeleted has nothing to do: the workload cluster goes as a whole.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
