// Package remediation decides which unhealthy nodes are replaced.
//
// Everything here is pure: no client, no clock, no randomness.
package remediation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// After is the default for how long a node is unready before it is replaced.
const After = 10 * time.Minute

// Node is what is known of one node.
type Node struct {
	// Name is for messages: role and id.
	Name string
	// Master says that an etcd member runs there.
	Master bool
	// Joined says that the node has been part of the cluster: replacing a node that never came up does not help.
	Joined bool
	// Ready says that its Node is Ready; otherwise Since is since when it is not.
	Ready bool
	Since time.Time
	// Leaving says that the node's pod is being deleted, or that it has none.
	Leaving bool
	// Created is when its pod was created.
	Created time.Time
}

// Limits bound the decision.
type Limits struct {
	// After is how long a node is unready before it is replaced, and how long nothing is replaced after any node pod
	// was created.
	After time.Duration
	// Connected says that the workload cluster responds, and Watched for how long it has done so without interruption.
	Connected bool
	Watched   time.Duration
}

// settling is how long a workload cluster has to respond before anything is replaced, or After, if that is less:
// healthy kubelets report every ten seconds, and may not have reported since the API came back.
const settling = 30 * time.Second

// Decision says what to replace now.
type Decision struct {
	// Replace are indexes into the nodes.
	Replace []int
	// Reason and Message say what the decision waits for; both are empty if all nodes are healthy.
	Reason, Message string
	// After is when to decide again; zero means when something changes.
	After time.Duration
}

// Decide decides which nodes to replace at the given time: at most one master, and only if all others are Ready; of all
// nodes a tenth, but at least one. Nothing is replaced while the cluster does not respond or most of its nodes look
// unhealthy, because then the operator's view is more likely to be wrong, nor when the cluster has responded only for a
// moment, nor within the pause after any pod was created.
func Decide(nodes []Node, l Limits, now time.Time) Decision {
	var unready, due []int
	var next time.Duration
	for i, n := range nodes {
		if n.Ready || !n.Joined {
			continue
		}
		unready = append(unready, i)
		if left := l.After - now.Sub(n.Since); left <= 0 {
			due = append(due, i)
		} else if next == 0 || left < next {
			next = left
		}
	}
	switch {
	case len(unready) == 0:
		return Decision{}
	case !l.Connected:
		return Decision{Reason: "ClusterUnreachable", Message: "nothing is replaced while the API of the workload cluster does not answer"}
	case len(unready)*2 > len(nodes):
		return Decision{Reason: "MostNodesUnhealthy", Message: fmt.Sprintf(
			"%d of %d nodes are not Ready: remediation is paused because so many failures probably have a common cause", len(unready), len(nodes))}
	case len(due) == 0:
		return Decision{Reason: "Watching", Message: names(nodes, unready) + " is replaced once it has not been Ready for " + l.After.String(), After: next}
	}
	if left := min(settling, l.After) - l.Watched; left > 0 {
		return Decision{Reason: "Watching", After: left, Message: names(nodes, due) + " is replaced if it is still not Ready when the API of the workload cluster has answered for " + min(settling, l.After).String()}
	}
	if wait, why := pause(nodes, l, now); wait > 0 {
		return Decision{Reason: "Pausing", Message: why, After: wait}
	}
	chosen := choose(nodes, due)
	if len(chosen) == 0 {
		return Decision{Reason: "MastersNotReady", Message: names(nodes, due) + " is not replaced while another master is not Ready"}
	}
	return Decision{Replace: chosen, Reason: "Replacing", Message: names(nodes, chosen) + " has not been Ready for " + l.After.String(), After: l.After}
}

// pause returns how long to wait until no node is changing, and for which node. A pod on a dead host may stay in that
// state forever.
func pause(nodes []Node, l Limits, now time.Time) (wait time.Duration, why string) {
	for _, n := range nodes {
		if n.Leaving {
			return l.After, n.Name + " is being replaced: one of its pods is terminating, or there is none"
		}
		if left := l.After - now.Sub(n.Created); left > wait {
			wait, why = left, n.Name+" was created less than "+l.After.String()+" ago"
		}
	}
	return wait, why
}

// choose selects as many due nodes as may be replaced at once, the longest unready first.
func choose(nodes []Node, due []int) []int {
	slices.SortStableFunc(due, func(a, b int) int { return nodes[a].Since.Compare(nodes[b].Since) })
	most := max(1, int(math.Round(float64(len(nodes))/10)))
	var chosen []int
	master := false
	for _, i := range due {
		if nodes[i].Master && (master || !othersReady(nodes, i)) {
			continue
		}
		if len(chosen) == most {
			break
		}
		master = master || nodes[i].Master
		chosen = append(chosen, i)
	}
	return chosen
}

func othersReady(nodes []Node, master int) bool {
	for i, n := range nodes {
		if n.Master && i != master && !n.Ready {
			return false
		}
	}
	return true
}

func names(nodes []Node, chosen []int) string {
	var list []string
	for _, i := range chosen {
		list = append(list, nodes[i].Name)
	}
	return strings.Join(list, ", ")
}
