package cluster

import (
	"testing"
	"time"
)

func TestClocksThatDifferAreDoubted(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		off     func() time.Duration
		doubted bool
	}{
		"there is one clock":       {off: nil},
		"they agree":               {off: func() time.Duration { return 0 }},
		"they differ by a day":     {off: func() time.Duration { return day }},
		"they differ by more":      {off: func() time.Duration { return day + time.Second }, doubted: true},
		"one is nine months ahead": {off: func() time.Duration { return 270 * day }, doubted: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (&Reconciler{ClockDifference: test.off}).doubt(); (err != nil) != test.doubted {
				t.Errorf("err = %v, want doubt: %t", err, test.doubted)
			}
		})
	}
}
