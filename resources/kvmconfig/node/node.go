// Package node is the handler of Nodes whose machines are gone. A pod that replaces another one has another name, and
// so does its Node; only the operator knows that the old Node will not return.
package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Remover removes a Node of a workload cluster.
type Remover interface {
	DeleteNode(ctx context.Context, node *corev1.Node) error
}

// Witness knows for certain whether the management cluster has a pod that has not ended.
type Witness interface {
	PodRuns(ctx context.Context, namespace, name string) (bool, error)
}

// New returns the handler; remover returns what writes to the workload cluster, nil while it cannot be reached.
func New(w Witness, remover func(*state.Machines) Remover) chain.Handler[*state.Machines] {
	return handler{w, remover}
}

type handler struct {
	witness Witness
	remover func(*state.Machines) Remover
}

// Name returns the handler's name.
func (handler) Name() string { return "node" }

// stillRuns is when to look again at a Node whose pod only the API server knows.
const stillRuns = time.Minute

// EnsureCreated removes stale Nodes. The cache may be out of date, so the API server decides whether a pod exists:
// while it does, its finalizer means that its machine may run.
func (h handler) EnsureCreated(ctx context.Context, m *state.Machines) (chain.Outcome, error) {
	done := strays(Strays(m.Workload.Nodes, m.Pods()))
	remover := h.remover(m)
	if remover == nil {
		return done, nil
	}
	var errs []error
	for _, n := range Stale(m.Config.Spec.Cluster.ID, m.Workload.Nodes, m.Pods()) {
		runs, err := h.witness.PodRuns(ctx, m.Namespace(), n.Name)
		if err == nil && !runs {
			err = remover.DeleteNode(ctx, n)
		}
		if runs {
			// The cache does not show the pod, so it does not show its end either.
			done.After = stillRuns
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// strays reports Nodes that are Ready without a pod: a machine that the management cluster no longer knows, or a client
// that has kept the certificate of a removed node. It blocks nothing, because a pod that was deleted by force leaves
// such a Node for some time.
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
	done.Reason, done.Message = "NodesWithoutPods", "Nodes that are Ready but have no node pod: "+text+"; find out what runs there, or delete them"
	return done
}

// Strays returns the names of the Nodes that are Ready and whose pods do not exist or have ended, regardless of their
// labels: a client that registers a Node again omits the operator's labels.
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

// living returns which pods have not ended.
func living(pods []corev1.Pod) map[string]bool {
	alive := map[string]bool{}
	for i := range pods {
		alive[pods[i].Name] = !joining.Ended(&pods[i])
	}
	return alive
}

// Stale returns the Nodes that belong to node pods of the cluster, that are not Ready and whose pods do not exist or
// have ended: a host that shuts down leaves pods that never run again and that are not deleted. A Node that is Ready
// without a pod runs somewhere, regardless of what the management cluster says.
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

// EnsureDeleted has nothing to do, because the workload cluster is deleted as a whole.
func (handler) EnsureDeleted(context.Context, *state.Machines) (chain.Outcome, error) {
	return chain.Done(), nil
}
