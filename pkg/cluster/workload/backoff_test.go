package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPausesDoubleUpToTenSeconds(t *testing.T) {
	var got []time.Duration
	for attempts := range 8 {
		got = append(got, pause(attempts))
	}
	want := []time.Duration{
		500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, longestPause, longestPause, longestPause,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestPausesAreRandomWithinAFifth(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		b := backoff{attempts: 1_000_000}
		d := b.next()
		seen[d] = true
		if d > longestPause || d < longestPause*4/5 {
			t.Errorf("pause of %s", d)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d different pauses", len(seen))
	}
}

func TestPausesBeginAnewAfterReset(t *testing.T) {
	var b backoff
	for range 10 {
		b.next()
	}
	b.reset()
	if d := b.next(); d > firstPause {
		t.Errorf("first pause of %s", d)
	}
}
