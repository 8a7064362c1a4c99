package workload

import (
	"math/rand/v2"
	"time"
)

const (
	// firstPause and longestPause bound how long an attempt waits for the next one.
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// backoff doubles the pause from attempt to attempt.
type backoff struct{ attempts int }

// next is the pause before the next attempt. A fifth of it is random, so that clusters that were lost together do not come
// back in step.
func (b *backoff) next() time.Duration {
	d := pause(b.attempts)
	b.attempts++
	return d - rand.N(d/5) //nolint:gosec // nothing depends on its being unpredictable
}

func (b *backoff) reset() { b.attempts = 0 }

// pause is the longest that may pass after the given number of pauses before.
func pause(attempts int) time.Duration {
	d := firstPause
	for range attempts {
		if d *= 2; d >= longestPause {
			return longestPause
		}
	}
	return d
}
