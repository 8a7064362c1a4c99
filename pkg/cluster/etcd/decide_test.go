package etcd

import (
	"fmt"
	"slices"
	"testing"
)

const (
	// mostMembers is up to how many members the safety test enumerates: a cluster of five has six while it replaces
	// one.
	mostMembers = 6
	// fewMembers is the same for the test that follows each situation to its end.
	fewMembers = 4
)

// kind is everything about a member that Decide may look at, except which one leads.
type kind struct{ wanted, learner, started, healthy bool }

// kinds are all kinds that exist: a member that has not started does not respond; if it has a vote, it is a founding
// member.
var kinds = func() []kind {
	var all []kind
	for _, wanted := range []bool{true, false} {
		for _, learner := range []bool{true, false} {
			all = append(all, kind{wanted, learner, false, false}, kind{wanted, learner, true, false}, kind{wanted, learner, true, true})
		}
	}
	return all
}()

func masterNamed(i int) Master {
	return Master{Name: fmt.Sprintf("etcd-m%d", i), PeerURL: fmt.Sprintf("https://master-m%d:2380", i)}
}

// situation is a member list and the existing masters.
type situation struct {
	members []Member
	masters []Master
}

// makeSituation: the first members are of the given kinds; then follow masters without a member. leader is an index, or
// -1.
func makeSituation(ks []kind, missing, leader int) situation {
	var s situation
	for i, k := range ks {
		w := masterNamed(i)
		m := Member{ID: uint64(i + 1), PeerURL: w.PeerURL, Learner: k.learner, Healthy: k.healthy, Leader: i == leader}
		if m.Started = k.started; k.started || !k.learner {
			m.Name = w.Name
		}
		s.members = append(s.members, m)
		if k.wanted {
			s.masters = append(s.masters, w)
		}
	}
	for i := range missing {
		s.masters = append(s.masters, masterNamed(len(ks)+i))
	}
	return s
}

// eachSituation calls f with all situations of up to that many members. Order does not matter, so it generates only
// nondecreasing sequences of kinds.
func eachSituation(most int, f func(situation)) int {
	count := 0
	var grow func(ks []int)
	grow = func(ks []int) {
		chosen := make([]kind, len(ks))
		for i, k := range ks {
			chosen[i] = kinds[k]
		}
		for missing := range 3 {
			for leader := -1; leader < len(ks); leader++ {
				if leader >= 0 && (!chosen[leader].healthy || chosen[leader].learner) {
					continue
				}
				f(makeSituation(chosen, missing, leader))
				count++
			}
		}
		if len(ks) == most {
			return
		}
		first := 0
		if len(ks) > 0 {
			first = ks[len(ks)-1]
		}
		for k := first; k < len(kinds); k++ {
			grow(append(slices.Clone(ks), k))
		}
	}
	grow(nil)
	return count
}

// spare returns how many responding members may fail before quorum is lost.
func faultTolerance(members []Member) int {
	voters := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Learner })
	return healthy(voters) - majority(len(voters))
}

// after returns the situation once etcd has carried out a step.
func after(s situation, step Step) situation {
	members := slices.Clone(s.members)
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == step.Member.ID })
	switch step.Action {
	case Add:
		id := uint64(1)
		for _, m := range members {
			id = max(id, m.ID+1)
		}
		members = append(members, Member{ID: id, PeerURL: step.Master.PeerURL, Learner: true})
	case Promote:
		members[at].Learner = false
	case Remove:
		members = slices.Delete(members, at, at+1)
	case MoveLeader:
		for i := range members {
			members[i].Leader = members[i].ID == step.Successor.ID
		}
	case None, Wait:
	}
	return situation{members: members, masters: s.masters}
}

// TestNoStepCostsTheMajority covers every list of up to six members of every kind, with up to two masters that have no
// member.
func TestNoStepCostsTheMajority(t *testing.T) {
	count := eachSituation(mostMembers, func(s situation) {
		step := Decide(s.members, s.masters)
		if (step.Reason == "") != (step.Action == None) || step.Message == "" {
			t.Fatalf("%+v: %+v does not say why", s, step)
		}
		if problem := unsafe(s, step); problem != "" {
			t.Fatalf("%s\nmembers: %+v\nmasters: %+v\nstep: %+v", problem, s.members, s.masters, step)
		}
	})
	visited(t, count, 107_100)
}

// visited logs how many situations a test covered, and fails if that is not the expected number.
func visited(t *testing.T, count, all int) {
	t.Helper()
	t.Logf("%d situations", count)
	if count != all {
		t.Errorf("there are %d situations", all)
	}
}

// unsafe says what is wrong with a step, independently of how it was decided.
func unsafe(s situation, step Step) string {
	if step.Action == None || step.Action == Wait {
		return ""
	}
	before, then := faultTolerance(s.members), after(s, step)
	wanted := func(m Member) bool { return slices.ContainsFunc(s.masters, func(w Master) bool { return w.Has(m) }) }
	learners := func(members []Member) int {
		return len(slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Learner }))
	}
	switch {
	case before < 0:
		return "etcd has no majority and could not do it"
	case faultTolerance(then.members) < 0:
		return "the majority is lost"
	case faultTolerance(then.members) < before && len(unhealthy(then.members)) > 0:
		return "fewer members may fail than before, while one does"
	case learners(then.members) > 1 && learners(then.members) > learners(s.members):
		return "there are two learners"
	}
	switch step.Action {
	case Promote:
		if !step.Member.Learner || !step.Member.Healthy || !wanted(step.Member) {
			return "this member must not get a vote"
		}
	case Remove:
		if wanted(step.Member) {
			return "this member is wanted"
		}
		if step.Member.Leader {
			return "the leader is taken out"
		}
	case MoveLeader:
		if !step.Successor.Healthy || step.Successor.Learner || !wanted(step.Successor) {
			return "this member must not lead"
		}
	case Add:
		if slices.ContainsFunc(s.members, step.Master.Has) {
			return "the master has a member"
		}
	case None, Wait:
	}
	return ""
}

// TestStepsEnd: from every list, with machines that start once their members are added, all masters have their members
// in the end, unless a member that does not respond blocks it; then the last step names that member.
func TestStepsEnd(t *testing.T) {
	whole, waiting := 0, 0
	eachSituation(fewMembers, func(s situation) {
		voted := slices.ContainsFunc(s.members, func(m Member) bool { return !m.Learner })
		if !voted || len(s.masters) == 0 {
			return // etcd would not report this
		}
		steps := 0
		for {
			step := Decide(s.members, s.masters)
			if step.Action == None {
				if len(s.members) != len(s.masters) {
					t.Fatalf("whole with members %+v and masters %+v", s.members, s.masters)
				}
				whole++
				return
			}
			if step.Action == Wait && !begin(s, step) {
				if len(unhealthy(s.members)) == 0 {
					t.Fatalf("all members are healthy, and yet %+v\nmembers: %+v\nmasters: %+v", step, s.members, s.masters)
				}
				waiting++
				return
			}
			s = after(s, step)
			if steps++; steps > 10*mostMembers {
				t.Fatalf("no end is in sight: %+v\nmembers: %+v\nmasters: %+v", step, s.members, s.masters)
			}
		}
	})
	t.Logf("%d situations ended whole, %d wait for a member that does not answer", whole, waiting)
}

// begin starts the member that a step waits for, if it has not started yet.
func begin(s situation, step Step) bool {
	if step.Reason != ReasonJoining || step.Member.Started {
		return false
	}
	for i, m := range s.members {
		for _, w := range s.masters {
			if m.ID == step.Member.ID && w.Has(m) {
				s.members[i].Name, s.members[i].Started, s.members[i].Healthy = w.Name, true, true
				return true
			}
		}
	}
	return false
}

// TestWays follows the changes that users make, step by step.
func TestWays(t *testing.T) {
	for name, way := range map[string]struct {
		members, masters string // "a*" leads, "a!" does not respond
		want             []string
	}{
		"one to three":                 {"a*", "abc", []string{"Add b", "Promote b", "Add c", "Promote c"}},
		"three to five":                {"a*bc", "abcde", []string{"Add d", "Promote d", "Add e", "Promote e"}},
		"five to three":                {"abcde*", "abc", []string{"Remove d", "MoveLeader e a", "Remove e"}},
		"three to one":                 {"a*bc", "a", []string{"Remove b", "Remove c"}},
		"three to one, and it leads":   {"ab*c", "c", []string{"Remove a", "MoveLeader b c", "Remove b"}},
		"a healthy one for another":    {"a*bc", "bcd", []string{"Add d", "Promote d", "MoveLeader a b", "Remove a"}},
		"one that is dead for another": {"a!b*c", "bcd", []string{"Remove a", "Add d", "Promote d"}},
		"three to one, one is dead":    {"a*bc!", "a", []string{"Remove c", "Remove b"}},
		"the one that stays is dead":   {"a!b*c", "a", []string{"Wait Leaving"}},
		"no majority":                  {"a!b!c", "abc", []string{"Wait NoQuorum"}},
		"one of three is dead":         {"a!b*c", "abc", []string{"Wait MemberUnhealthy"}},
		"growing while one is dead":    {"a!b*c", "abcde", []string{"Add d", "Promote d", "Add e", "Promote e", "Wait MemberUnhealthy"}},
		"no masters":                   {"a*", "", []string{"Wait NoMaster"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{members: parse(way.members)}
			for _, m := range parse(way.masters) {
				s.masters = append(s.masters, Master{Name: m.Name, PeerURL: m.PeerURL})
			}
			var got []string
			for range 20 {
				step := Decide(s.members, s.masters)
				if step.Action == Wait && begin(s, step) {
					continue
				}
				if text := describe(step); text != "" {
					got = append(got, text)
				}
				if step.Action == None || step.Action == Wait {
					break
				}
				s = after(s, step)
			}
			if !slices.Equal(got, way.want) {
				t.Errorf("got %q, want %q", got, way.want)
			}
		})
	}
}

func parse(text string) []Member {
	var all []Member
	for _, r := range text {
		switch r {
		case '*':
			all[len(all)-1].Leader = true
		case '!':
			all[len(all)-1].Healthy = false
		default:
			all = append(all, Member{ID: uint64(r), Name: string(r), PeerURL: "https://" + string(r), Started: true, Healthy: true})
		}
	}
	return all
}

func describe(step Step) string {
	switch step.Action {
	case Add:
		return "Add " + step.Master.Name
	case MoveLeader:
		return "MoveLeader " + step.Member.label() + " " + step.Successor.label()
	case Promote, Remove:
		return string(step.Action) + " " + Master{Name: step.Member.Name, PeerURL: step.Member.PeerURL}.short()
	case Wait:
		return "Wait " + step.Reason
	case None:
	}
	return ""
}

// short is the letter of a master.
func (w Master) short() string { return w.PeerURL[len("https://"):] }
