package etcd

import (
	"testing"
	"time"
)

// TestPauses: what has just changed is looked at again at once, what is waited for ever more seldom, and a member that could not be defragmented
// is left alone, be it the first time or not.
func TestPauses(t *testing.T) {
	whole, joining := State{}, State{Step: Step{Action: Wait, Reason: ReasonJoining}}
	whole.Step.Action = None
	failed := State{Step: Step{Action: Wait, Reason: ReasonDefragmenting}}
	alarmed := whole
	alarmed.Alarms = []string{"memberID:1 alarm:NOSPACE"}
	for name, test := range map[string]struct {
		pause       time.Duration
		before, now State
		want        time.Duration
	}{
		"whole":                           {time.Second, whole, whole, lookAgain},
		"something is waited for":         {lookAgain, whole, joining, firstPause},
		"it still is":                     {4 * time.Second, joining, joining, 8 * time.Second},
		"it is for long":                  {longestPause, joining, joining, longestPause},
		"an alarm":                        {lookAgain, whole, alarmed, firstPause},
		"the first defragmentation fails": {lookAgain, whole, failed, tryAgain},
		"a defragmentation fails again":   {tryAgain, failed, failed, tryAgain},
		"a member is whole after a defragmentation": {tryAgain, failed, whole, firstPause},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(test.pause, test.before, test.now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
