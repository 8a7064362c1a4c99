// Package fence prevents an operator from writing when it may no longer be the leader.
//
// A leader learns too late that it has lost its Lease if its process was stopped, its host was suspended, or its
// goroutines got no CPU: another replica leads by then. So every writer checks the fence first, and the fence depends
// only on the clock: it is open for a term after the last request that renewed the Lease was sent. Other replicas wait
// longer than that before they take the Lease, by their own clock and from the moment in which they saw the renewal.
//
// Once another replica has held the Lease, the fence stays closed, because what this process knows of the world may be
// outdated.
package fence

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRefused is wrapped by every refusal.
var ErrRefused = errors.New("writes are refused")

// Fence is open as long as this replica holds its Lease. It is safe for concurrent use; a nil one is always open.
type Fence struct {
	term     time.Duration
	clock    func() time.Duration
	refusal  error
	lost     chan struct{}
	loseOnce sync.Once

	mu sync.Mutex
	// until is when the fence closes by itself; zero before the Lease was held for the first time.
	until time.Duration
	// over says that it stays closed.
	over bool
}

// New returns a closed Fence. lease is the name of the Lease in messages, and term is how long the fence is open after
// a renewal. clock returns the time since some moment, never jumps, and advances even while the process is stopped.
func New(lease string, term time.Duration, clock func() time.Duration) *Fence {
	return &Fence{
		term: term, clock: clock, lost: make(chan struct{}),
		refusal: fmt.Errorf("this replica does not hold the Lease %s: %w", lease, ErrRefused),
	}
}

// SinceBoot is the clock of a Fence: the time since the machine was started, including the time in which it was
// suspended (CLOCK_BOOTTIME of clock_gettime(2)), in which Go's own monotonic clock stops.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux since 2.6.39 has this clock
	}
	return time.Duration(now.Nano())
}

// Now returns the clock's time. Read it before the Lease is renewed, because the request may take any time to arrive.
func (f *Fence) Now() time.Duration { return f.clock() }

// Renewed records that this replica holds the Lease by a request that was sent at the given time of Now.
func (f *Fence) Renewed(sent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = max(f.until, sent+f.term)
}

// Release closes the fence permanently. It is called before the Lease is released.
func (f *Fence) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// Lose records that another replica holds the Lease, or none does. It closes the fence permanently, if it has ever been
// open.
func (f *Fence) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until != 0 && !f.over {
		f.over = true
		f.loseOnce.Do(func() { close(f.lost) })
	}
}

// Lost returns a channel that is closed when this replica has lost the Lease without releasing it.
func (f *Fence) Lost() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.lost
}

// Over returns why this replica can never write again; nil if it may still get or keep the Lease.
func (f *Fence) Over() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return f.refusal
	}
	return nil
}

// Check returns why nothing may be written now; nil if writes are allowed. The error wraps ErrRefused.
func (f *Fence) Check() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.until == 0 || f.clock() >= f.until {
		return f.refusal
	}
	return nil
}
