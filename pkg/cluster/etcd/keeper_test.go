package etcd

import (
	"testing"
	"time"
)

// TestPauses: after a change the next observation follows at once; while the Keeper waits, observations become less
// frequent.
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
		"a defragmentation fails":         {lookAgain, whole, failed, firstPause},
		"a member is left alone for long": {longestPause, failed, failed, longestPause},
		"a member is whole after a defragmentation": {longestPause, failed, whole, firstPause},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(test.pause, test.before, test.now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
