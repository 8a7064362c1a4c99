package workload

import (
	"testing"
	"time"
)

// TestPausesDoubleUpToTenSeconds: a fifth of each is random.
func TestPausesDoubleUpToTenSeconds(t *testing.T) {
	most := []time.Duration{
		500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second,
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		pauses := newPauses()
		for i, want := range most {
			d := pauses.Step()
			if d > want || d < want*4/5 {
				t.Errorf("pause %d is %s, want %s at most and four fifths of it at least", i, d, want)
			}
			seen[d] = true
		}
	}
	if len(seen) < 10*len(most) {
		t.Errorf("only %d different pauses", len(seen))
	}
}

// TestPausesStayLong: after many attempts, the pause is as long and as random as before.
func TestPausesStayLong(t *testing.T) {
	pauses, seen := newPauses(), map[time.Duration]bool{}
	for i := range 1000 {
		if d := pauses.Step(); i >= 5 {
			seen[d] = true
			if d > 10*time.Second || d < 8*time.Second {
				t.Fatalf("pause of %s", d)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different pauses", len(seen))
	}
}
