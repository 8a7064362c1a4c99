// Package placing chooses the nodes of SmolVMs. It is pure: the caller says what it has seen and what time it is.
//
// The rules, their order and their texts are those of smolvm-operator. What differs: taints count, unless spec.tolerations
// has a toleration; what is left out of a spec counts with the runtime's defaults; a SmolVM that is being deleted counts
// until it is gone, because its machine may still be there; and among nodes that suit, the one with the most free memory
// is chosen, then the first by name.
package placing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// Node is a node with a runtime.
type Node struct {
	// Runtime is what the runtime reports.
	Runtime *v1alpha1.SmolVMNode
	// Host is the Node of that name; nil if there is none.
	Host *corev1.Node
}

// Seen is what a decision is made from.
type Seen struct {
	// Nodes are all nodes with a runtime, in any order.
	Nodes []Node
	// Bound has a Claim for every SmolVM of the cluster that has a node, those that are being deleted included.
	Bound []Claim
	// Assumed has Claims of earlier decisions, which Bound may not have yet. A Claim may be in both.
	Assumed []Claim
	// Now is the time that heartbeats are compared with.
	Now time.Time
}

// Decision is where a SmolVM is placed, or why it is not.
type Decision struct {
	// Node is the name of the node; empty if none suits.
	Node string
	// Message says why no node suits.
	Message string
	// Rejected are the nodes that do not suit, by name.
	Rejected []Rejection
}

// Rejection is why a node does not suit.
type Rejection struct{ Node, Reason string }

// Decide places a SmolVM. One that has a node, or has been given one by an earlier decision, keeps it, whatever has become
// of the node.
func Decide(vm *v1alpha1.SmolVM, seen Seen) Decision {
	if vm.Status.NodeName != "" {
		return Decision{Node: vm.Status.NodeName}
	}
	own := ClaimOf(vm)
	if i := slices.IndexFunc(seen.Assumed, own.isOf); i >= 0 && seen.Assumed[i].Node != "" {
		return Decision{Node: seen.Assumed[i].Node}
	}
	taken := add(own, seen.Bound, seen.Assumed)
	if vm.Spec.NodeName != "" {
		return decidePinned(vm, own, seen, taken)
	}
	var d Decision
	var best []Node
	for _, node := range sorted(seen.Nodes) {
		if reason := reject(vm, own, node, taken, seen.Now); reason != "" {
			d.Rejected = append(d.Rejected, Rejection{Node: node.Runtime.Name, Reason: reason})
			continue
		}
		best = append(best, node)
	}
	switch {
	case len(best) > 0:
		d.Node = slices.MaxFunc(best, func(a, b Node) int { return cmp.Compare(freeMemory(a, taken), freeMemory(b, taken)) }).Runtime.Name
	case len(seen.Nodes) == 0:
		d.Message = "no SmolVMNode objects exist"
	default:
		d.Message = "no ready SmolVMNode matches this VM: " + list(d.Rejected)
	}
	return d
}

// decidePinned places a SmolVM whose spec names its node.
func decidePinned(vm *v1alpha1.SmolVM, own Claim, seen Seen, taken ledger) Decision {
	name := vm.Spec.NodeName
	i := slices.IndexFunc(seen.Nodes, func(n Node) bool { return n.Runtime.Name == name })
	if i < 0 {
		return Decision{Message: fmt.Sprintf("pinned node %s has no SmolVMNode runtime status", name)}
	}
	if reason := reject(vm, own, seen.Nodes[i], taken, seen.Now); reason != "" {
		return Decision{Message: fmt.Sprintf("pinned node %s is not eligible: %s", name, reason), Rejected: []Rejection{{Node: name, Reason: reason}}}
	}
	return Decision{Node: name}
}

// Shortage returns what of its node is missing for a Claim that a SmolVM is to have instead of the one that is in seen; empty
// if there is enough. A spec can grow after the decision, so it is asked before the machine is created, and before a disk
// grows.
func Shortage(own Claim, seen Seen) string {
	i := slices.IndexFunc(seen.Nodes, func(n Node) bool { return n.Runtime.Name == own.Node })
	if i < 0 {
		return ""
	}
	return add(own, seen.Bound, seen.Assumed)[own.Node].reject(own, seen.Nodes[i].Runtime.Status.Allocatable)
}

// listed is how many rejections a message has, so that it fits into a condition.
const listed = 20

func list(rejected []Rejection) string {
	var parts []string
	for _, r := range rejected[:min(listed, len(rejected))] {
		parts = append(parts, r.Node+": "+r.Reason)
	}
	if more := len(rejected) - listed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func sorted(nodes []Node) []Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return strings.Compare(a.Runtime.Name, b.Runtime.Name) })
}

// freeMemory is what is left of a node's memory in MiB. A node that does not say how much it has comes last.
func freeMemory(node Node, taken ledger) int64 {
	allocatable := node.Runtime.Status.Allocatable.MemoryMiB
	if allocatable == 0 {
		return math.MinInt64
	}
	return allocatable - taken[node.Runtime.Name].memoryMiB
}

// reject returns why a node does not suit; empty if it does.
func reject(vm *v1alpha1.SmolVM, own Claim, node Node, taken ledger, now time.Time) string {
	if !Eligible(node.Runtime, now) {
		return "runtime not ready, heartbeat stale, or endpoint missing"
	}
	for key, value := range vm.Spec.NodeSelector {
		if has, ok := node.Runtime.Labels[key]; !ok || has != value {
			return "nodeSelector does not match"
		}
	}
	if reason := rejectHost(vm, node); reason != "" {
		return reason
	}
	return taken[node.Runtime.Name].reject(own, node.Runtime.Status.Allocatable)
}

// rejectHost returns what of the Node is against a SmolVM.
func rejectHost(vm *v1alpha1.SmolVM, node Node) string {
	switch {
	case node.Host == nil:
		// The words are those of a cache that has no such Node.
		return fmt.Sprintf("Kubernetes Node unavailable: Node %q not found", node.Runtime.Name)
	case node.Host.Spec.Unschedulable:
		return "Kubernetes Node is unschedulable"
	case !slices.ContainsFunc(node.Host.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}):
		return "Kubernetes Node is not Ready"
	}
	for i := range node.Host.Spec.Taints {
		if taint := &node.Host.Spec.Taints[i]; repels(taint, vm.Spec.Tolerations) {
			return "Kubernetes Node has untolerated taint " + taint.ToString()
		}
	}
	return ""
}
