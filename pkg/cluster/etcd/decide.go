// Package etcd keeps the members of a workload cluster's etcd in step with its masters, one change at a time and never
// at the cost of quorum.
//
// The next step is a pure function of the member list and the masters (Decide). Nothing is stored about a change in
// progress: a member that was added and has not started, or has started and has not caught up, is in etcd's own list,
// and the next decision finds it there.
package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Member is a member of etcd as the members themselves report it.
type Member struct {
	// ID is the ID that etcd assigned; it is never reused.
	ID uint64
	// Name is empty for a member that was added and has not started. Founding members have their name from the start.
	Name string
	// Started says that the member has run: it published its client URLs.
	Started bool
	// PeerURL is where other members reach it.
	PeerURL string
	// Learner says that it receives all data but has no vote yet.
	Learner bool
	// Healthy says that it responds and knows a leader.
	Healthy bool
	// Leader says that it is the leader.
	Leader bool
}

// label is the name of the member in messages.
func (m Member) label() string { return cmp.Or(m.Name, m.PeerURL) }

// Master is a master of the cluster, which should have a member.
type Master struct {
	// Name and PeerURL are those of its member.
	Name, PeerURL string
}

// Has reports whether m is the member of the master. A member without a name is identified by its address only.
func (w Master) Has(m Member) bool {
	return m.Name == w.Name || m.Name == "" && m.PeerURL == w.PeerURL
}

// Action is what a Step does.
type Action string

// The Actions.
const (
	// None means that every master has its member and there are no others.
	None Action = "None"
	// Wait means that something has to happen first that the operator does not control; Step.Message says what.
	Wait Action = "Wait"
	// Add adds a member for Step.Master, as a learner.
	Add Action = "Add"
	// Promote gives Step.Member a vote.
	Promote Action = "Promote"
	// MoveLeader makes Step.Successor the leader in place of Step.Member.
	MoveLeader Action = "MoveLeader"
	// Remove removes Step.Member from the list.
	Remove Action = "Remove"
)

// Step is the next change.
type Step struct {
	Action    Action
	Master    Master
	Member    Member
	Successor Member
	// Reason and Message explain the step, in the words of a condition. Reason is empty if there is nothing to do.
	Reason, Message string
}

// Reasons of steps.
const (
	ReasonMemberUnhealthy = "MemberUnhealthy"
	ReasonNoMaster        = "NoMaster"
	ReasonNoQuorum        = "NoQuorum"
	ReasonJoining         = "Joining"
	ReasonLeaving         = "Leaving"
)

// Decide returns the next step. members are those of a list that a majority has agreed on; without such a list nothing
// can be decided.
//
// The rules are ordered by increasing risk. A member without a vote may always be removed. A voter that does not
// respond and is not wanted only makes quorum harder to reach, so it is removed before anything is added. A new member
// is promoted once it responds. There is at most one learner at a time, and until it has started, the list does not
// change. A healthy surplus member is removed last, and only while all remaining members are healthy: until then it is
// one more copy of the data.
//
// With n voters of which h respond, h - (n/2+1) may still fail. Removing a voter that does not respond and promoting a
// member that does never lower this number; Decide lowers it only by a removal that leaves only healthy members.
func Decide(members []Member, masters []Master) Step {
	if len(masters) == 0 {
		return Step{Action: Wait, Reason: ReasonNoMaster, Message: "there is no master, so no member of etcd is needed"}
	}
	v := look(members, masters)
	if h := healthy(v.voters); h < majority(len(v.voters)) {
		return Step{Action: Wait, Reason: ReasonNoQuorum, Message: fmt.Sprintf(
			"%d of %d members of etcd answer, %d are needed: %s", h, len(v.voters), majority(len(v.voters)), labels(unhealthy(v.voters)))}
	}
	for _, rule := range []func(view) (Step, bool){removeSurplusLearner, awaitLearnerStart, removeFailedVoter, promoteLearner, addLearner, removeSurplusVoter} {
		if step, ok := rule(v); ok {
			return step
		}
	}
	if sick := unhealthy(v.voters); len(sick) > 0 {
		return Step{Action: Wait, Reason: ReasonMemberUnhealthy, Message: "unhealthy: " + labels(sick)}
	}
	return Step{Action: None, Message: fmt.Sprintf("%d of %d members of etcd are healthy", len(v.voters), len(v.voters))}
}

// view is the members as the rules of Decide need them, each list ordered by name.
type view struct {
	voters, learners []Member
	// surplus are the IDs of members that belong to no master.
	surplus map[uint64]bool
	// missing are the masters without a member.
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

// removeSurplusLearner removes a surplus learner: a member without a vote is no loss.
func removeSurplusLearner(v view) (Step, bool) {
	for _, m := range v.learners {
		if v.surplus[m.ID] {
			return remove(m, "its master was removed"), true
		}
	}
	return Step{}, false
}

// awaitLearnerStart waits until a learner has started. A machine that is about to join was given the list of all
// members, and cannot join if the list has changed by then.
func awaitLearnerStart(v view) (Step, bool) {
	for _, m := range v.learners {
		if !m.Started {
			return Step{Action: Wait, Reason: ReasonJoining, Member: m, Message: m.label() + " was added and has not started yet"}, true
		}
	}
	return Step{}, false
}

// removeFailedVoter removes a surplus member that does not respond, because it makes quorum harder to reach.
func removeFailedVoter(v view) (Step, bool) {
	for _, m := range v.voters {
		if v.surplus[m.ID] && !m.Healthy && len(v.voters) > 1 {
			return remove(m, "its master was removed, and it does not answer"), true
		}
	}
	return Step{}, false
}

// promoteLearner promotes a learner. etcd itself rejects one that has not caught up.
func promoteLearner(v view) (Step, bool) {
	if len(v.learners) == 0 {
		return Step{}, false
	}
	m := v.learners[0]
	if !m.Healthy {
		return Step{Action: Wait, Reason: ReasonJoining, Member: m, Message: m.label() + " is a learner and does not answer"}, true
	}
	return Step{Action: Promote, Reason: ReasonJoining, Member: m, Message: m.label() + " is a learner and is promoted once it has caught up"}, true
}

// addLearner adds a member for a master that has none. There is no learner at this point, because promoteLearner would
// have returned a step for it.
func addLearner(v view) (Step, bool) {
	if len(v.missing) == 0 {
		return Step{}, false
	}
	w := v.missing[0]
	return Step{Action: Add, Master: w, Reason: ReasonJoining, Message: w.Name + " is added as a learner"}, true
}

// removeSurplusVoter removes surplus members. All masters have members at this point. The leader is removed last, after
// it has transferred leadership.
func removeSurplusVoter(v view) (Step, bool) {
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
	if sick := unhealthy(staying); len(sick) > 0 || len(staying) == 0 {
		return Step{Action: Wait, Reason: ReasonLeaving, Message: fmt.Sprintf(
			"%s is removed once all others are healthy: %s", labels(leaving), labels(sick))}, true
	}
	slices.SortStableFunc(leaving, func(a, b Member) int { return compareBool(a.Leader, b.Leader) })
	if m := leaving[0]; m.Leader {
		return Step{Action: MoveLeader, Member: m, Successor: staying[0], Reason: ReasonLeaving,
			Message: fmt.Sprintf("leadership moves to %s before %s is removed", staying[0].label(), m.label())}, true
	}
	return remove(leaving[0], "its master was removed"), true
}

func remove(m Member, why string) Step {
	return Step{Action: Remove, Member: m, Reason: ReasonLeaving, Message: m.label() + " is removed: " + why}
}

// majority returns how many of n votes are a majority.
func majority(n int) int { return n/2 + 1 }

func healthy(members []Member) int { return len(members) - len(unhealthy(members)) }

func unhealthy(members []Member) []Member {
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
