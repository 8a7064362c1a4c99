package etcd

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUpkeepRests: no upkeep begins after a call of Ask, and for longer after a failed defragmentation; a shorter pause
// does not end a longer one.
func TestUpkeepRests(t *testing.T) {
	for name, test := range map[string]struct {
		came        Step
		asked, full bool
		want        time.Duration
	}{
		"all members are healthy":                     {came: Step{Action: None}},
		"another query was requested":                 {came: Step{Action: None}, asked: true, want: restWhenAsked},
		"another query was requested, and it is full": {came: Step{Action: None}, asked: true, full: true},
		"it failed":                           {came: Step{Action: Wait, Reason: ReasonDefragmenting}, want: tryAgain},
		"it failed, and it is full":           {came: Step{Action: Wait, Reason: ReasonDefragmenting}, full: true, want: tryAgain},
		"it failed, and a query is requested": {came: Step{Action: Wait, Reason: ReasonDefragmenting}, asked: true, want: restWhenAsked},
		"it is full, and nothing helped":      {came: Step{Action: Wait, Reason: ReasonFull}, full: true, want: longestPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upkeep{}
				u.end(test.came)
				if test.asked {
					u.rest()
				}
				if u.told() != test.came {
					t.Errorf("it is forgotten: %+v", u.told())
				}
				rested := time.Duration(0)
				for u.rests(test.full) {
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

// TestUpkeepIsTold: upkeep is reported while it is in progress, and in the same words as before when it is retried.
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

// TestWhoIsDefragmentedDoesNotAnswer: the member counts as unhealthy from the moment in which the step is decided; the
// others are not affected.
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
			o.markDefragmenting(test.under)
			if o.members[0].Healthy != test.want || !o.members[1].Healthy {
				t.Errorf("got %+v", o.members)
			}
		})
	}
}
