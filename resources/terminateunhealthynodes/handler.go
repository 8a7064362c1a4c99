// Package terminateunhealthynodes is the handler that replaces nodes which stay unhealthy, where that is switched on.
package terminateunhealthynodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/remediation"
)

// Terminator deletes a node pod and says why; its Deployment makes a new one, and the old one is drained as far as that is possible.
type Terminator interface {
	Terminate(ctx context.Context, config *v1alpha1.KVMConfig, pod *corev1.Pod, why string) error
}

// New makes the handler.
func New(t Terminator, c clock.PassiveClock) chain.Handler[*cluster.Snapshot] { return handler{t, c} }

type handler struct {
	terminator Terminator
	clock      clock.PassiveClock
}

// Name is the handler's name.
func (handler) Name() string { return "terminateunhealthynodes" }

// EnsureCreated deletes the pods of the nodes that are to be replaced.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	enabled, after := s.Remediation()
	if !enabled {
		return chain.NotConfigured(), nil
	}
	now := h.clock.Now()
	nodes := look(s, now)
	d := remediation.Decide(nodes, remediation.Limits{After: after, Connected: s.Workload.Connected, Watched: s.Workload.Watched}, now)
	var errs []error
	for _, i := range d.Replace {
		errs = append(errs, h.terminator.Terminate(ctx, s.Config, s.Nodes[i].Pod(), why(nodes[i], now)))
	}
	if err := errors.Join(errs...); err != nil || d.Reason == "" {
		return chain.Done(), err
	}
	return chain.Wait(d.Reason, d.Message, d.After), nil
}

// why says why a node is replaced.
func why(n remediation.Node, now time.Time) string {
	return fmt.Sprintf("the Node of %s has not been Ready for %s", n.Name, now.Sub(n.Since).Round(time.Second))
}

// look is what the decision needs of each node, in the order of the snapshot. Since when a node is not Ready stands in its pod, by the
// operator's clock.
func look(s *cluster.Snapshot, now time.Time) []remediation.Node {
	var nodes []remediation.Node
	for _, n := range s.Nodes {
		// One that has not begun may wait for this very node.
		seen := remediation.Node{Name: n.Role + " " + n.ID, Master: n.Role == key.RoleMaster, Leaving: n.Deployment != nil}
		if pod := n.Pod(); pod != nil {
			seen.Created = pod.CreationTimestamp.Time
			seen.Leaving = pod.DeletionTimestamp != nil || len(n.Standing()) > 1
			node := s.Workload.Node(pod.Name)
			seen.Ready = joining.NodeReady(node).Status == corev1.ConditionTrue
			seen.Joined, seen.Since = unreadySince(pod, now)
			if changed := changedUnseen(node, s.Workload, now); seen.Since.Before(changed) {
				seen.Since = changed
			}
		}
		nodes = append(nodes, seen)
	}
	return nodes
}

// unreadySince tells whether the pod's Node has ever been seen, and since when it is not Ready, if it is not: just now if the pod does
// not say so yet.
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

// changedUnseen is when a Node began to be as Ready as it is, by the operator's clock, if that was before the workload cluster was seen without a
// break; zero if it was after that: then it stands in the pod. Meanwhile the Node may have been Ready.
func changedUnseen(node *corev1.Node, w cluster.Workload, now time.Time) time.Time {
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
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
