package etcd

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
)

// TestAsk: Ask returns once the members were asked after the call, and not on the result of an earlier request.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper(logr.Discard(), nil, func() {})
		before, _ := k.asking()
		answered := false
		go func() {
			if !k.Ask(t.Context()) {
				t.Error("no member was queried")
			}
			answered = true
		}()
		synctest.Wait()
		select {
		case <-k.wake:
		default:
			t.Error("there is no hurry")
		}
		before()
		synctest.Wait()
		if answered {
			t.Error("what was asked before has been the answer")
		}
		tell, asked := k.asking()
		if !asked {
			t.Error("no query is reported")
		}
		tell()
		synctest.Wait()
		if !answered {
			t.Error("the members were asked, and it is still waited for")
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if k.Ask(over) {
			t.Error("the members are said to have been asked")
		}
	})
}

func TestWhoHasAVote(t *testing.T) {
	k := NewKeeper(logr.Discard(), nil, func() {})
	expect := func(when string, voters int, want map[string]Vote) {
		t.Helper()
		for name, vote := range want {
			if got, of := k.Vote(name); got != vote || of != voters {
				t.Errorf("%s, %s has the vote %d of %d, want %d of %d", when, name, got, of, vote, voters)
			}
		}
	}
	expect("before a member is asked", 0, map[string]Vote{"etcd-m1": VoteAwaited})
	k.note(nil)
	expect("when no member answers", 0, map[string]Vote{"etcd-m1": VoteUnknown})
	k.note([]Member{{Name: "etcd-m1", Healthy: true}, {Name: "etcd-m2"}, {Name: "etcd-m3", Healthy: true, Learner: true}, {Name: ""}})
	now := map[string]Vote{"etcd-m1": VoteGiven, "etcd-m2": VoteMissing, "etcd-m3": VoteLearner, "etcd-m4": VoteNone}
	expect("when there is a list", 3, now)
	k.note(nil)
	expect("when the members do not answer for once", 3, now)
	k.listedAt = k.listedAt.Add(-remembered)
	expect("when they have not answered for long", 0, map[string]Vote{"etcd-m1": VoteUnknown, "etcd-m3": VoteUnknown})
}
