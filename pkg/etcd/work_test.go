package etcd

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUpkeepRests: after somebody has asked, and for longer after a member could not be defragmented; a shorter rest ends no longer one.
func TestUpkeepRests(t *testing.T) {
	for name, test := range map[string]struct {
		came  Step
		asked bool
		want  time.Duration
	}{
		"all is well":                    {Step{Action: None}, false, 0},
		"somebody has asked":             {Step{Action: None}, true, restWhenAsked},
		"it failed":                      {Step{Action: Wait, Reason: ReasonDefragmenting}, false, tryAgain},
		"it failed, and somebody asks":   {Step{Action: Wait, Reason: ReasonDefragmenting}, true, tryAgain},
		"it is full, and nothing helped": {Step{Action: Wait, Reason: ReasonFull}, false, longestPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upkeep{}
				u.end(test.came)
				if test.asked {
					u.rest(restWhenAsked)
				}
				if u.told() != test.came {
					t.Errorf("it is forgotten: %+v", u.told())
				}
				rested := time.Duration(0)
				for _, resting := u.now(); resting; _, resting = u.now() {
					time.Sleep(time.Second)
					rested += time.Second
				}
				if rested != test.want {
					t.Errorf("it rests for %s, want %s", rested, test.want)
				}
			})
		})
	}
}

// TestUpkeepIsTold: while it is under way, and in the same words as before when it is tried again.
func TestUpkeepIsTold(t *testing.T) {
	failed, compacts, defragments := Step{Action: Wait, Reason: ReasonFull}, Step{Action: Compact, Reason: ReasonFull}, Step{Action: Defragment, Reason: ReasonDefragmenting}
	for name, test := range map[string]struct {
		came        Step
		under, want Step
	}{
		"the first thing":               {Step{}, compacts, compacts},
		"what failed is tried again":    {failed, compacts, failed},
		"something else comes after it": {failed, defragments, defragments},
		"what went well is done again":  {Step{Action: None}, defragments, defragments},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upkeep{came: test.came}
			u.begin(test.under)
			if got := u.told(); got != test.want {
				t.Errorf("told %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestWhoIsDefragmentedDoesNotAnswer: it counts so from the moment in which it is decided, and the others as they are.
func TestWhoIsDefragmentedDoesNotAnswer(t *testing.T) {
	a, b := Member{ID: 1, Name: "a", Healthy: true}, Member{ID: 2, Name: "b", Healthy: true}
	for name, test := range map[string]struct {
		under *Step
		want  bool
	}{
		"nothing is under way": {nil, true},
		"a is defragmented":    {&Step{Action: Defragment, Member: a}, false},
		"a is compacted":       {&Step{Action: Compact, Member: a}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{members: []Member{a, b}}
			o.spare(test.under)
			if o.members[0].Healthy != test.want || !o.members[1].Healthy {
				t.Errorf("got %+v", o.members)
			}
		})
	}
}
