// Package etcd keeps the members of a workload cluster's etcd in step with its masters, one change at a time and never at the
// cost of its majority.
//
// What is done next is a pure function of the list of members and the masters (Decide). Nothing is stored about a change
// that has begun: a member that was added and has not started, or starts and has not caught up, stands in etcd's own list,
// and the next decision finds it there.
package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Member is a member of etcd as the members themselves tell of it.
type Member struct {
	// ID is the number that etcd gave it; it is never given again.
	ID uint64
	// Name is empty for a member that was added and has not started. Founders have theirs from the beginning.
	Name string
	// Started says that the member has run: it has told the others where clients reach it.
	Started bool
	// PeerURL is where other members reach it.
	PeerURL string
	// Learner says that it receives everything and has no vote yet.
	Learner bool
	// Healthy says that it answers and knows a leader.
	Healthy bool
	// Leader says that it leads.
	Leader bool
}

// label is what people know the member by.
func (m Member) label() string { return cmp.Or(m.Name, m.PeerURL) }

// Master is a master of the cluster: it is to have a member.
type Master struct {
	// Name and PeerURL are those of its member.
	Name, PeerURL string
}

// Has says whether a member is that of the master. A member without a name is known by its address only.
func (w Master) Has(m Member) bool {
	return m.Name == w.Name || m.Name == "" && m.PeerURL == w.PeerURL
}

// Action is what a Step does.
type Action string

// Actions.
const (
	// None: every master has its member and nobody else has one.
	None Action = "None"
	// Wait: something has to happen first that is not in the operator's hands; Step.Message says what.
	Wait Action = "Wait"
	// Add makes a member of Step.Master, as a learner.
	Add Action = "Add"
	// Promote gives Step.Member a vote.
	Promote Action = "Promote"
	// MoveLeader makes Step.Successor lead in the place of Step.Member.
	MoveLeader Action = "MoveLeader"
	// Remove takes Step.Member out of the list.
	Remove Action = "Remove"
)

// Step is the one change that is next.
type Step struct {
	Action    Action
	Master    Master
	Member    Member
	Successor Member
	// Reason and Message say why, in the words of a condition. There is no Reason to do nothing.
	Reason, Message string
}

// Reasons of steps.
const (
	ReasonMemberUnhealthy = "MemberUnhealthy"
	ReasonNoMaster        = "NoMaster"
	ReasonNoMajority      = "NoMajority"
	ReasonJoining         = "Joining"
	ReasonLeaving         = "Leaving"
)

// Decide says what is next. The members are those of a list that a majority has agreed on; without such a list there is
// nothing to decide.
//
// The order is that of growing risk. What has no vote may always go, and a vote that is not answered for only makes the
// majority harder to reach, so it goes before anything is added. A new member gets its vote once it answers; at most one
// learner is there at a time, and until it has started the list stays as it is. A member that is well goes last and only while all that stay are well: until then it is one
// more that holds the data.
//
// With n votes of which h answer, h - (n/2+1) may still fail. Taking out a vote that does not answer and giving one to a
// member that does never lower this number; Decide lowers it only by a removal that leaves nobody unwell.
func Decide(members []Member, masters []Master) Step {
	if len(masters) == 0 {
		return Step{Action: Wait, Reason: ReasonNoMaster, Message: "there is no master that a member could be kept for"}
	}
	v := look(members, masters)
	if h := healthy(v.voters); h < majority(len(v.voters)) {
		return Step{Action: Wait, Reason: ReasonNoMajority, Message: fmt.Sprintf(
			"%d of %d members of etcd answer, %d are needed: %s", h, len(v.voters), majority(len(v.voters)), labels(unwell(v.voters)))}
	}
	for _, rule := range []func(view) (Step, bool){dropLearner, expect, dropDead, admit, invite, dismiss} {
		if step, ok := rule(v); ok {
			return step
		}
	}
	if sick := unwell(v.voters); len(sick) > 0 {
		return Step{Action: Wait, Reason: ReasonMemberUnhealthy, Message: "not well: " + labels(sick)}
	}
	return Step{Action: None, Message: fmt.Sprintf("%d of %d members of etcd are well", len(v.voters), len(v.voters))}
}

// view is the members by what Decide asks of them, each list by name.
type view struct {
	voters, learners []Member
	// surplus are members that no master is the machine of.
	surplus map[uint64]bool
	// missing are masters without a member.
	missing []Master
}

func look(members []Member, masters []Master) view {
	v := view{surplus: map[uint64]bool{}}
	sorted := slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.label(), b.label()), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range sorted {
		if m.Learner {
			v.learners = append(v.learners, m)
		} else {
			v.voters = append(v.voters, m)
		}
		v.surplus[m.ID] = !slices.ContainsFunc(masters, func(w Master) bool { return w.Has(m) })
	}
	for _, w := range slices.SortedFunc(slices.Values(masters), func(a, b Master) int { return cmp.Compare(a.Name, b.Name) }) {
		if !slices.ContainsFunc(members, w.Has) {
			v.missing = append(v.missing, w)
		}
	}
	return v
}

// dropLearner: what has no vote is no loss.
func dropLearner(v view) (Step, bool) {
	for _, m := range v.learners {
		if v.surplus[m.ID] {
			return remove(m, "its master was removed"), true
		}
	}
	return Step{}, false
}

// expect: a machine that is about to join was told of all members, and cannot join when the list is another one by then.
func expect(v view) (Step, bool) {
	for _, m := range v.learners {
		if !m.Started {
			return Step{Action: Wait, Reason: ReasonJoining, Member: m, Message: m.label() + " was added and has not started yet"}, true
		}
	}
	return Step{}, false
}

// dropDead: a member that does not answer and is not wanted makes the majority harder to reach.
func dropDead(v view) (Step, bool) {
	for _, m := range v.voters {
		if v.surplus[m.ID] && !m.Healthy && len(v.voters) > 1 {
			return remove(m, "its master was removed, and it does not answer"), true
		}
	}
	return Step{}, false
}

// admit: a learner becomes a member like others. etcd itself refuses one that has not caught up.
func admit(v view) (Step, bool) {
	if len(v.learners) == 0 {
		return Step{}, false
	}
	m := v.learners[0]
	if !m.Healthy {
		return Step{Action: Wait, Reason: ReasonJoining, Member: m, Message: m.label() + " has no vote yet and does not answer"}, true
	}
	return Step{Action: Promote, Reason: ReasonJoining, Member: m, Message: m.label() + " gets its vote once it has caught up"}, true
}

// invite: there is no learner here, for admit would have spoken of it.
func invite(v view) (Step, bool) {
	if len(v.missing) == 0 {
		return Step{}, false
	}
	w := v.missing[0]
	return Step{Action: Add, Master: w, Reason: ReasonJoining, Message: w.Name + " is added without a vote"}, true
}

// dismiss: all masters have members here. Who leads goes last, and hands the lead over before.
func dismiss(v view) (Step, bool) {
	var leaving, staying []Member
	for _, m := range v.voters {
		if v.surplus[m.ID] {
			leaving = append(leaving, m)
		} else {
			staying = append(staying, m)
		}
	}
	if len(leaving) == 0 {
		return Step{}, false
	}
	if sick := unwell(staying); len(sick) > 0 || len(staying) == 0 {
		return Step{Action: Wait, Reason: ReasonLeaving, Message: fmt.Sprintf(
			"%s stays until all others are well: %s", labels(leaving), labels(sick))}, true
	}
	slices.SortStableFunc(leaving, func(a, b Member) int { return compareBool(a.Leader, b.Leader) })
	if m := leaving[0]; m.Leader {
		return Step{Action: MoveLeader, Member: m, Successor: staying[0], Reason: ReasonLeaving,
			Message: fmt.Sprintf("%s leads before %s is taken out", staying[0].label(), m.label())}, true
	}
	return remove(leaving[0], "its master was removed"), true
}

func remove(m Member, why string) Step {
	return Step{Action: Remove, Member: m, Reason: ReasonLeaving, Message: m.label() + " is taken out: " + why}
}

// majority is how many of n votes decide.
func majority(n int) int { return n/2 + 1 }

func healthy(members []Member) int { return len(members) - len(unwell(members)) }

func unwell(members []Member) []Member {
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Healthy })
}

func labels(members []Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.label())
	}
	return strings.Join(all, ", ")
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
