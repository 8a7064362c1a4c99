// Package rolling decides which node of a cluster may be replaced next. It is pure.
package rolling

import "slices"

// Node is what the decision depends on.
type Node struct {
	// ID is the node's id.
	ID string
	// Master says that the node is a master.
	Master bool
	// Exists says that the node has been made; one that has not is away, and may wait for others before it is.
	Exists bool
	// Outdated says that what runs is not what is wanted.
	Outdated bool
	// Ready says that the node serves in the form that was last asked for.
	Ready bool
}

// Limits are the user's bounds.
type Limits struct {
	// MaxUnavailable is how many workers may be away at once; less than 1 counts as 1.
	MaxUnavailable int
	// Paused holds every replacement.
	Paused bool
	// Blind says that the workload cluster does not answer, so that nobody knows how its nodes are.
	Blind bool
	// Lost says that masters have been without their majority for so long that it does not come back by itself, see Minority.
	Lost bool
}

// Decision says what may be done now.
type Decision struct {
	// Replace holds the ids of the outdated nodes that may be replaced now.
	Replace map[string]bool
	// Waiting holds the ids of the outdated nodes that may not, in the order of their turn.
	Waiting []string
	// Reason says why they wait: Paused, MasterNotReady, MastersFirst, WorkersNotReady or ClusterUnreachable; WaitingFor is
	// the id of the node that is under way and waited for, empty when paused or when the cluster does not answer.
	Reason, WaitingFor string
}

// Decide picks the outdated nodes to replace now.
//
//   - Masters go first, one at a time, the next one when all others are Ready. A worker waits for every master.
//   - Workers go while fewer than MaxUnavailable of them are away.
//   - A node that is not Ready serves nobody, so replacing it takes nothing away: it goes before its healthy peers, and
//     waits neither for itself nor for nodes that have not been made. That is how a broken master is mended by an upgrade.
//   - Masters that have lost their majority for good are replaced all at once, as far as they are not Ready. Before, those that are away as
//     they were, such as one whose host boots, are more likely to come back than those of a form that nobody has seen Ready.
//   - While the cluster does not answer, workers wait, and so do masters that seem to be Ready: one of three that is taken
//     away may be the one that the others need. A master that is alone has nobody to ask, and one that is not Ready is
//     replaced, for that may be what the cluster needs to answer again.
//   - A node that was replaced and is not Ready yet is waited for; a node never counts as replaced by being Ready in its
//     old form.
func Decide(nodes []Node, limits Limits) Decision {
	d := Decision{Replace: map[string]bool{}}
	if limits.Paused {
		d.wait(outdated(nodes), "Paused", nil)
		return d
	}
	masters, workers := split(nodes)
	if limits.Blind {
		d.role(masters, bounds{limit: 1, hold: len(masters) > 1, lost: limits.Lost, reason: "ClusterUnreachable"})
		d.wait(outdated(workers), "ClusterUnreachable", nil)
		return d
	}
	d.role(masters, bounds{limit: 1, lost: limits.Lost, reason: "MasterNotReady"})
	if len(outdated(masters)) > 0 || slices.ContainsFunc(masters, away) {
		d.wait(outdated(workers), "MastersFirst", masters)
		return d
	}
	d.role(workers, bounds{limit: max(1, limits.MaxUnavailable), reason: "WorkersNotReady"})
	return d
}

// Minority says whether no majority of the masters is Ready.
func Minority(nodes []Node) bool {
	masters, _ := split(nodes)
	return len(masters) > 0 && count(masters, away) > (len(masters)-1)/2
}

// bounds hold for the nodes of one role: at most limit of them may be away, those that are Ready stay while hold is set, all that are not may be
// replaced at once when they are lost and a minority is Ready, and reason is why the others wait.
type bounds struct {
	limit      int
	hold, lost bool
	reason     string
}

// role picks among the nodes of one role.
func (d *Decision) role(nodes []Node, b bounds) {
	gone, inFlight := count(nodes, away), count(nodes, func(n Node) bool { return n.Exists && underWay(n) })
	// Masters without a majority serve nobody and may need each other to come back, so waiting for one would be for ever.
	dead := b.lost && Minority(nodes)
	var waiting []string
	for _, wantReady := range []bool{false, true} {
		for _, n := range nodes {
			switch {
			case !n.replaceable() || n.Ready != wantReady:
			case n.Ready && gone < b.limit && !b.hold:
				d.Replace[n.ID] = true
				gone++
			case !n.Ready && (inFlight < b.limit || dead):
				d.Replace[n.ID] = true
				inFlight++
			default:
				waiting = append(waiting, n.ID)
			}
		}
	}
	d.wait(waiting, b.reason, nodes)
}

// wait lets the nodes with the ids wait for the first of the others that is under way. The first reason stays.
func (d *Decision) wait(ids []string, reason string, others []Node) {
	if len(ids) == 0 {
		return
	}
	d.Waiting = append(d.Waiting, ids...)
	if d.Reason != "" {
		return
	}
	d.Reason = reason
	for _, n := range others {
		switch {
		case d.Replace[n.ID] || n.Exists && underWay(n):
			d.WaitingFor = n.ID
			return
		case !n.Exists && d.WaitingFor == "":
			d.WaitingFor = n.ID
		}
	}
}

func split(nodes []Node) (masters, workers []Node) {
	for _, n := range nodes {
		if n.Master {
			masters = append(masters, n)
		} else {
			workers = append(workers, n)
		}
	}
	return masters, workers
}

func outdated(nodes []Node) []string {
	var ids []string
	for _, n := range nodes {
		if n.replaceable() {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// replaceable: what does not exist is made anyway.
func (n Node) replaceable() bool { return n.Exists && n.Outdated }

func away(n Node) bool { return !n.Exists || !n.Ready }

// underWay: it is away and nothing more can be done for it.
func underWay(n Node) bool { return away(n) && !n.replaceable() }

func count(nodes []Node, which func(Node) bool) int {
	counted := 0
	for _, n := range nodes {
		if which(n) {
			counted++
		}
	}
	return counted
}
