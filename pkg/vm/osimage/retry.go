package osimage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

var (
	errStalled  = errors.New("the server has been silent for too long")
	errInsecure = errors.New("it is redirected from https to http, and nothing else would tell that it is the right file")
	errCircle   = errors.New("it is redirected too often")
	errChanged  = errors.New("the file has changed on the server in the meantime")
)

// finalError is an error that a retry does not fix.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

func final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// retry calls attempt until it succeeds, fails permanently or fails too often in a row. An attempt that made progress
// resets the count.
func (t timing) retry(ctx context.Context, tell func(string, ...any), attempt func() (further bool, err error)) error {
	wait, tries := t.backoff, 0
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
			wait, tries = t.backoff, 0
		}
		if tries++; tries >= t.attempts {
			return fmt.Errorf("given up after %d attempts: %w", tries, err)
		}
		tell("%v; trying again in %s", err, wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, t.maxBackoff)
	}
}

// passing are the statuses below 500 that may be temporary.
var passing = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// statusError returns an error that is final if a retry does not change it.
func statusError(file string, status string, code int) error {
	err := fmt.Errorf("%s: the server answers %s", file, status)
	if code < http.StatusInternalServerError && !slices.Contains(passing, code) {
		return final(err)
	}
	return err
}

// requestError names the URL without its secret parts, and makes permanent errors final.
func requestError(ctx context.Context, file string, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		err = cause
	}
	wrapped := fmt.Errorf("%s: %w", file, err)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) || errors.Is(err, errInsecure) || errors.Is(err, errCircle) {
		return final(wrapped)
	}
	return wrapped
}
