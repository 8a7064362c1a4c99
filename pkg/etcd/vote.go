package etcd

import (
	"slices"
	"time"
)

// Vote is what is known of the vote of a master's member.
type Vote int

const (
	// VoteUnknown is that nobody can tell, for the members do not answer.
	VoteUnknown Vote = iota
	// VoteAwaited is that no member was asked yet; it will be known in a moment.
	VoteAwaited
	// VoteNone is that its member has none, or it has no member.
	VoteNone
	// VoteMissing is that its member has one and does not answer.
	VoteMissing
	// VoteGiven is that its member has one and answers.
	VoteGiven
)

// remembered is how long a list counts after its members have stopped to answer.
const remembered = 2 * time.Minute

// voteOf is that of a member by its name in a list.
func voteOf(list []Member, name string) Vote {
	at := slices.IndexFunc(list, func(m Member) bool { return m.Name == name })
	switch {
	case at < 0 || list[at].Learner:
		return VoteNone
	case !list[at].Healthy:
		return VoteMissing
	}
	return VoteGiven
}

// Vote is what is known of the vote of a member.
func (k *Keeper) Vote(name string) Vote {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.asked:
		return VoteAwaited
	case k.listed == nil || time.Since(k.listedAt) > remembered:
		return VoteUnknown
	}
	return voteOf(k.listed, name)
}

// note keeps in mind what the members have told; nil when they have told nothing.
func (k *Keeper) note(list []Member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = true
	if list != nil {
		k.listed, k.listedAt = list, time.Now()
	}
}
