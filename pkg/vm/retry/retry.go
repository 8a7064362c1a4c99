// Package retry repeats what a server did not do at once, and knows which of its answers do not change.
package retry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Policy is how patient a client is.
type Policy struct {
	// Attempts is how often in a row an attempt may fail without progress.
	Attempts int
	// Backoff is the pause between the first two attempts. It is doubled each time up to MaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// maxAfter bounds the pause that a server may ask for.
const maxAfter = time.Minute

// ErrStalled is the cause of a context that ended because a server sent nothing for too long.
var ErrStalled = errors.New("the server has been silent for too long")

// finalError is an error that a retry does not fix.
type finalError struct{ error }

// Unwrap returns the cause.
func (e *finalError) Unwrap() error { return e.error }

// Final returns an error that ends Do at once; nil for nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// laterError is an error after which a server wants a pause.
type laterError struct {
	error
	pause time.Duration
}

// Unwrap returns the cause.
func (e *laterError) Unwrap() error { return e.error }

// Later returns an error with the pause that a server asks for before the next attempt. Do waits for a minute at most.
func Later(err error, pause time.Duration) error { return &laterError{err, pause} }

// Do calls attempt until it succeeds, fails permanently or fails too often in a row. An attempt that made progress
// resets the count. The error is that of the last attempt, or the cause of the context if that ended.
func (p Policy) Do(ctx context.Context, tell func(string, ...any), attempt func() (further bool, err error)) error {
	wait, tries := p.Backoff, 0
	for {
		further, err := attempt()
		var end *finalError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &end):
			return end.error
		case further:
			wait, tries = p.Backoff, 0
		}
		if tries++; tries >= p.Attempts {
			return fmt.Errorf("given up after %d attempts: %w", tries, err)
		}
		pause := wait
		var later *laterError
		if errors.As(err, &later) {
			pause = max(wait, min(later.pause, maxAfter))
		}
		tell("%v; trying again in %s", err, pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		wait = min(2*wait, p.MaxBackoff)
	}
}

// passing are the statuses below 500 that may be temporary.
var passing = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// Passing reports whether a status of HTTP may be temporary, so that a retry can change it.
func Passing(status int) bool {
	return status >= http.StatusInternalServerError || slices.Contains(passing, status)
}
