package etcd

import (
	"slices"
	"time"
)

// Vote is what is known of the vote of a master's member.
type Vote int

const (
	// VoteUnknown means that the vote is unknown because the members do not respond.
	VoteUnknown Vote = iota
	// VoteAwaited means that no member was asked yet.
	VoteAwaited
	// VoteNone means that it has no member, or one that was added and has not started.
	VoteNone
	// VoteLearner means that its member has no vote yet.
	VoteLearner
	// VoteMissing means that its member has a vote and does not respond.
	VoteMissing
	// VoteGiven means that its member has a vote and responds.
	VoteGiven
)

// remembered is how long a list counts after the members stopped responding.
const remembered = 2 * time.Minute

// voteOf returns the vote of the member with the given name in a list.
func voteOf(list []Member, name string) Vote {
	at := slices.IndexFunc(list, func(m Member) bool { return m.Name == name })
	switch {
	case at < 0:
		return VoteNone
	case list[at].Learner:
		return VoteLearner
	case !list[at].Healthy:
		return VoteMissing
	}
	return VoteGiven
}

// Vote returns what is known of the vote of a member, and how many members have a vote; zero if that is not known. It
// counts members that belong to no master too, because they are part of the quorum.
func (k *Keeper) Vote(name string) (vote Vote, voters int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.asked:
		return VoteAwaited, 0
	case k.listed == nil || time.Since(k.listedAt) > remembered:
		return VoteUnknown, 0
	}
	for _, m := range k.listed {
		if !m.Learner {
			voters++
		}
	}
	return voteOf(k.listed, name), voters
}

// note records the list that the members returned; nil if they returned none.
func (k *Keeper) note(list []Member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = true
	if list != nil {
		k.listed, k.listedAt = list, time.Now()
	}
}
