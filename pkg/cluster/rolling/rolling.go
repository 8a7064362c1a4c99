// Package rolling decides which node of a cluster may be replaced next. It is pure.
package rolling

import "slices"

// Node is what the decision depends on.
type Node struct {
	// ID is the node's id.
	ID string
	// Master says that the node is a master.
	Master bool
	// Exists says that the node has been created; one that has not is unavailable, and may wait for others before it is
	// created.
	Exists bool
	// Outdated says that what runs is not what is wanted.
	Outdated bool
	// Ready says that the node is Ready with its newest specification.
	Ready bool
}

// Limits are the user's limits.
type Limits struct {
	// MaxUnavailable is how many workers may be unavailable at once; less than 1 counts as 1.
	MaxUnavailable int
	// Paused prevents every replacement.
	Paused bool
	// Blind says that the workload cluster does not respond, so that the state of its nodes is unknown.
	Blind bool
	// Lost says that masters have been without their majority for so long that it does not recover by itself, see
	// Minority.
	Lost bool
}

// Decision says what may be done now.
type Decision struct {
	// Replace contains the ids of the outdated nodes that may be replaced now.
	Replace map[string]bool
	// Waiting contains the ids of the outdated nodes that may not be replaced yet, in their order.
	Waiting []string
	// Reason says why they wait: Paused, MasterNotReady, MastersFirst, WorkersNotReady or ClusterUnreachable.
	// WaitingFor is the id of the node in progress that they wait for, empty if paused or if the cluster does not
	// respond.
	Reason, WaitingFor string
}

// Decide selects the outdated nodes to replace now.
//
//   - Masters go first, one at a time, the next one when all others are Ready. A worker waits for every master.
//   - Workers are replaced while fewer than MaxUnavailable of them are unavailable.
//   - A node that is not Ready serves nothing, so replacing it loses nothing: it is replaced before its healthy peers,
//     and waits neither for itself nor for nodes that have not been created. So an upgrade repairs a broken master.
//   - If masters have lost their majority permanently, all that are not Ready are replaced at once. Before that, masters
//     that are unavailable with their old specification, for example because their host boots, are more likely to come
//     back than ones with a specification that has never been Ready.
//   - While the cluster does not respond, workers wait, and so do masters that seem to be Ready: one of three that is
//     removed may be the one that the others need. A single master needs no others, and one that is not Ready is
//     replaced, because that may be what the cluster needs to respond again.
//   - A node that was replaced and is not Ready yet is waited for; a node never counts as replaced by being Ready with
//     its old specification.
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

// Minority reports whether fewer than a majority of the masters are Ready.
func Minority(nodes []Node) bool {
	masters, _ := split(nodes)
	return len(masters) > 0 && count(masters, away) > (len(masters)-1)/2
}

// bounds apply to the nodes of one role. At most limit of them may be unavailable; those that are Ready stay while hold
// is set; if lost is set and only a minority is Ready, all that are not Ready may be replaced at once. reason is why
// the others wait.
type bounds struct {
	limit      int
	hold, lost bool
	reason     string
}

// role selects among the nodes of one role.
func (d *Decision) role(nodes []Node, b bounds) {
	gone, inFlight := count(nodes, away), count(nodes, func(n Node) bool { return n.Exists && underWay(n) })
	// Masters without a majority serve nothing and may need each other to come back, so waiting for one could last
	// forever.
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

// wait makes the nodes with the ids wait for the first of the others that is in progress. The first reason is kept.
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

// replaceable reports whether the node can be replaced. A node that does not exist is created in any case.
func (n Node) replaceable() bool { return n.Exists && n.Outdated }

func away(n Node) bool { return !n.Exists || !n.Ready }

// underWay reports whether the node is unavailable and nothing more can be done for it.
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
