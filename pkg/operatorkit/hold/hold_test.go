package hold

import (
	"testing"
	"time"
)

// TestValuesEnd: each counts for as long as was said last, and no longer.
func TestValuesEnd(t *testing.T) {
	begin := time.Now()
	var h Held[string, int]
	want := func(key string, after time.Duration, value int, left time.Duration) {
		t.Helper()
		if gotValue, gotLeft := h.Get(key, begin.Add(after)); gotValue != value || gotLeft != left {
			t.Errorf("%s after %s: %d for %s, want %d for %s", key, after, gotValue, gotLeft, value, left)
		}
	}
	want("a", 0, 0, 0)
	h.Put("a", 1, begin, time.Minute)
	h.Put("b", 2, begin, time.Hour)
	want("a", 0, 1, time.Minute)
	want("a", 59*time.Second, 1, time.Second)
	want("a", time.Minute, 0, 0)
	want("b", time.Minute, 2, 59*time.Minute)
	h.Put("a", 3, begin.Add(time.Minute), time.Minute)
	want("a", 90*time.Second, 3, 30*time.Second)
	h.Drop("a")
	want("a", 90*time.Second, 0, 0)
	if got := h.Len(begin.Add(59 * time.Minute)); got != 1 {
		t.Errorf("%d count, want 1", got)
	}
	if got := h.Len(begin.Add(time.Hour)); got != 0 {
		t.Errorf("%d count at the end, want none", got)
	}
}

// TestValuesThatHaveEndedAreForgotten, although keys do not come again.
func TestValuesThatHaveEndedAreForgotten(t *testing.T) {
	now := time.Now()
	var h Held[int, string]
	for key := range 10_000 {
		h.Put(key, "", now, time.Minute)
		now = now.Add(time.Second)
		if len(h.all) > 120 {
			t.Fatalf("after %d keys, %d are remembered", key+1, len(h.all))
		}
	}
}
