package qemu

import (
	"testing"
	"time"
)

// until waits for a condition.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	deadline := time.After(startTimeout)
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for !holds() {
		select {
		case <-retry.C:
		case <-deadline:
			t.Fatal("what is waited for does not happen")
		}
	}
}
