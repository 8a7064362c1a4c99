package osimage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"

	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

var (
	errInsecure = errors.New("it is redirected from https to http, and nothing else would tell that it is the right file")
	errCircle   = errors.New("it is redirected too often")
	errChanged  = errors.New("the file has changed on the server in the meantime")
)

// retry calls attempt until it succeeds, fails permanently or fails too often in a row. An attempt that made progress
// resets the count.
func (t timing) retry(ctx context.Context, tell func(string, ...any), attempt func() (further bool, err error)) error {
	return retry.Policy{Attempts: t.attempts, Backoff: t.backoff, MaxBackoff: t.maxBackoff}.Do(ctx, tell, attempt)
}

// statusError returns an error that is final if a retry does not change it.
func statusError(file string, status string, code int) error {
	err := fmt.Errorf("%s: the server answers %s", file, status)
	if !retry.Passing(code) {
		return retry.Final(err)
	}
	return err
}

// requestError names the URL without its secret parts, and makes permanent errors final.
func requestError(ctx context.Context, file string, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if cause := context.Cause(ctx); errors.Is(cause, retry.ErrStalled) {
		err = cause
	}
	wrapped := fmt.Errorf("%s: %w", file, err)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) || errors.Is(err, errInsecure) || errors.Is(err, errCircle) {
		return retry.Final(wrapped)
	}
	return wrapped
}
