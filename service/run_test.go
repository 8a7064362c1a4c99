package service

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// TestStopsWhileTheAPIServerIsNotThere checks that the service ends before the caches are filled, and that nothing of it
// stays busy. controller-runtime's manager loops endlessly if its context ends earlier than the caches are filled.
func TestStopsWhileTheAPIServerIsNotThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(ctx, Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, Selector: labels.Everything()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("err = %v, want none", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the service does not stop")
	}
	const watched = 500 * time.Millisecond
	before := cpuTime(t)
	time.Sleep(watched)
	if used := cpuTime(t) - before; used > watched/2 {
		t.Errorf("within %s of its end, the service used %s of CPU time", watched, used)
	}
}

// cpuTime returns how much CPU time this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
