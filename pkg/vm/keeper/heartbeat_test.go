package keeper

import (
	"slices"
	"testing"
	"time"
)

// TestGuestThatStandsStillIsFound: observations every ten seconds of a machine whose guest may take half a minute until
// its first sign of life.
func TestGuestThatStandsStillIsFound(t *testing.T) {
	const patience = 30 * time.Second
	on := func(resets int, signs uint64) beat { return beat{running: true, resets: resets, signs: signs} }
	repeat := func(b beat, n int) []beat { return slices.Repeat([]beat{b}, n) }
	for name, test := range map[string]struct {
		beats []beat
		want  []int // the observations that find it hanging
	}{
		"it hangs from its beginning":                 {repeat(on(0, 7), 4), []int{3}},
		"it hangs after each reset, and waits longer": {slices.Concat(repeat(on(0, 7), 4), repeat(on(1, 7), 7), repeat(on(2, 7), 13)), []int{3, 10, 23}},
		"a reset that did nothing":                    {repeat(on(0, 7), 10), []int{3, 9}},
		"it wrote or sent in time":                    {slices.Concat(repeat(on(0, 7), 3), repeat(on(0, 8), 50)), nil},
		"it was idle after that":                      {slices.Concat(repeat(on(0, 0), 1), repeat(on(0, 1), 50)), nil},
		"it hangs after a reboot":                     {slices.Concat(repeat(on(0, 0), 1), repeat(on(0, 9), 50), repeat(on(1, 9), 4)), []int{54}},
		"it came to life the second time": {
			slices.Concat(repeat(on(0, 7), 4), repeat(on(1, 7), 2), repeat(on(1, 8), 5), repeat(on(2, 8), 4)), []int{3, 14},
		},
		"it is paused":                 {slices.Concat(repeat(on(0, 7), 1), repeat(beat{signs: 7}, 50)), nil},
		"it was paused, and then hung": {slices.Concat(repeat(beat{signs: 7}, 50), repeat(on(0, 7), 4)), []int{52}},
		"it was paused while it lived": {slices.Concat(repeat(on(0, 7), 1), repeat(on(0, 8), 1), repeat(beat{signs: 8}, 50), repeat(on(0, 8), 50)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var p heartbeat
			var got []int
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i, b := range test.beats {
				if p.overdue(now, b, patience) {
					got = append(got, i)
				}
				now = now.Add(10 * time.Second)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("it is found still at %d, want %d", got, test.want)
			}
		})
	}
}
