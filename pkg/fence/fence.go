// Package fence keeps an operator from writing when it may not lead any more.
//
// A leader learns too late that it has lost its Lease when its process was stopped, its host was suspended, or its goroutines got no CPU:
// another replica leads by then. So every writer asks the fence first, and the fence asks only the clock: it is open for a term
// after the request that renewed the Lease last was sent. Others wait longer than that, by the clock of their own and from the moment in
// which they saw the renewal, before they take the Lease.
//
// Once another has held the Lease the fence stays closed: what this process knows of the world may be of the time before.
package fence

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRefused is what every refusal wraps.
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

// New makes a closed Fence. lease is the name of the Lease in messages, term how long the fence is open after a renewal, and clock tells the
// time since some moment, without jumps, and goes on while the process does not.
func New(lease string, term time.Duration, clock func() time.Duration) *Fence {
	return &Fence{
		term: term, clock: clock, lost: make(chan struct{}),
		refusal: fmt.Errorf("this replica does not hold the Lease %s: %w", lease, ErrRefused),
	}
}

// SinceBoot is the clock of a Fence: the time since the machine was started, that in which it was suspended included (CLOCK_BOOTTIME of
// clock_gettime(2)). Go's own monotonic clock stands still meanwhile.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux since 2.6.39 has this clock
	}
	return time.Duration(now.Nano())
}

// Now is what the clock says. It is read before the Lease is renewed: the request may take any time to arrive.
func (f *Fence) Now() time.Duration { return f.clock() }

// Renewed notes that the Lease is this replica's by a request that was sent at a time of Now.
func (f *Fence) Renewed(sent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = max(f.until, sent+f.term)
}

// Release closes the fence for good. It is called before the Lease is given up.
func (f *Fence) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// Lose notes that another replica holds the Lease, or none does. That closes the fence for good, if it has ever been open.
func (f *Fence) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until != 0 && !f.over {
		f.over = true
		f.loseOnce.Do(func() { close(f.lost) })
	}
}

// Lost is closed when the Lease turns out to have been lost against this replica's will.
func (f *Fence) Lost() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.lost
}

// Over says why this replica can never write again; nil when it may still get and keep the Lease.
func (f *Fence) Over() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return f.refusal
	}
	return nil
}

// Check says why nothing may be written now; nil when it may. The error wraps ErrRefused.
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
