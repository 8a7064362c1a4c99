// Package terminateunhealthynodes is the handler that replaces nodes that stay unhealthy, if this is enabled.
package terminateunhealthynodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/remediation"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Terminator deletes a node pod and reports why; its Deployment creates a new one, and the old one is drained as far as
// possible.
type Terminator interface {
	Terminate(ctx context.Context, config *v1alpha1.KVMConfig, pod *corev1.Pod, why string) error
}

// New returns the handler.
func New(t Terminator, c clock.PassiveClock) chain.Handler[*state.Machines] { return handler{t, c} }

type handler struct {
	terminator Terminator
	clock      clock.PassiveClock
}

// Name returns the handler's name.
func (handler) Name() string { return "terminateunhealthynodes" }

// EnsureCreated deletes the pods of the nodes that have to be replaced.
func (h handler) EnsureCreated(ctx context.Context, m *state.Machines) (chain.Outcome, error) {
	enabled, after := m.Remediation()
	if !enabled {
		return chain.NotConfigured(), nil
	}
	now := h.clock.Now()
	nodes := look(m, now)
	d := remediation.Decide(nodes, remediation.Limits{After: after, Connected: m.Workload.Connected, Watched: m.Workload.Watched}, now)
	var errs []error
	for _, i := range d.Replace {
		errs = append(errs, h.terminator.Terminate(ctx, m.Config, m.Nodes[i].Pod(), why(nodes[i], now)))
	}
	if err := errors.Join(errs...); err != nil || d.Reason == "" {
		return chain.Done(), err
	}
	return chain.Wait(d.Reason, d.Message, d.After), nil
}

// why returns why a node is replaced.
func why(n remediation.Node, now time.Time) string {
	return fmt.Sprintf("the Node of %s has not been Ready for %s", n.Name, now.Sub(n.Since).Round(time.Second))
}

// look returns what the decision needs of each node, in the order of the state. Since when a node is not Ready is
// recorded in its pod, by the operator's clock.
func look(m *state.Machines, now time.Time) []remediation.Node {
	var nodes []remediation.Node
	for _, n := range m.Nodes {
		// A node that has not started may wait for this very node.
		seen := remediation.Node{Name: n.Role + " " + n.ID, Master: n.Role == key.RoleMaster, Leaving: n.Deployment != nil}
		if pod := n.Pod(); pod != nil {
			seen.Created = pod.CreationTimestamp.Time
			seen.Leaving = pod.DeletionTimestamp != nil || len(n.RunningPods()) > 1
			node := m.Workload.Node(pod.Name)
			seen.Ready = joining.NodeReady(node).Status == corev1.ConditionTrue
			seen.Joined, seen.Since = unreadySince(pod, now)
			if changed := changedUnseen(node, m.Workload, now); seen.Since.Before(changed) {
				seen.Since = changed
			}
		}
		nodes = append(nodes, seen)
	}
	return nodes
}

// unreadySince returns whether the pod's Node has ever been seen and, if it is not Ready, since when: now if the pod's
// gate does not say so yet.
func unreadySince(pod *corev1.Pod, now time.Time) (joined bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type != key.ConditionNodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return true, now
		}
		return true, c.LastTransitionTime.Time
	}
	return false, time.Time{}
}

// changedUnseen returns when the Ready condition of a Node last changed, by the operator's clock, if that was before
// the uninterrupted connection to the workload cluster began; zero if it was after that, because the pod's gate records
// it then. Before that the Node may have been Ready unnoticed.
func changedUnseen(node *corev1.Node, w state.Workload, now time.Time) time.Time {
	if node == nil {
		return time.Time{}
	}
	for _, c := range node.Status.Conditions {
		if ago := w.Now.Sub(c.LastTransitionTime.Time); c.Type == corev1.NodeReady && ago > w.Watched {
			return now.Add(-ago)
		}
	}
	return time.Time{}
}

// EnsureDeleted has nothing to do.
func (handler) EnsureDeleted(context.Context, *state.Machines) (chain.Outcome, error) {
	return chain.Done(), nil
}
