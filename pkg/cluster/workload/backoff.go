package workload

import (
	"math/rand/v2"
	"time"
)

const (
	// firstPause and longestPause bound the pause between two attempts.
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// backoff doubles the pause with each attempt.
type backoff struct{ attempts int }

// next returns the pause before the next attempt. A fifth of it is random, so that clusters that were lost together do
// not reconnect in lockstep.
func (b *backoff) next() time.Duration {
	d := pause(b.attempts)
	b.attempts++
	return d - rand.N(d/5) //nolint:gosec // nothing depends on its being unpredictable
}

func (b *backoff) reset() { b.attempts = 0 }

// pause returns the maximum pause after the given number of attempts.
func pause(attempts int) time.Duration {
	d := firstPause
	for range attempts {
		if d *= 2; d >= longestPause {
			return longestPause
		}
	}
	return d
}
