package fence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
)

// Transport sends requests that change something only while the fence is open. It checks again when a connection has
// been found, which may take long: a process that is stopped while it waits for one would otherwise write when it
// continues.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return &transport{fence: f, next: next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find what it needs to cancel a request.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if reads(request.Method) {
		return t.next.RoundTrip(request)
	}
	if err := t.fence.Check(); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // nothing of it is sent
		}
		return nil, err
	}
	return t.send(request)
}

// send sends a request, unless the fence is closed before that. HTTP/2 does not begin to write a request whose context
// has ended.
func (t *transport) send(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if err := t.fence.Check(); err != nil {
			cancel(err)
		}
	}})
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrRefused) {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &answer{ReadCloser: response.Body, end: cancel}
	return response, nil
}

// answer ends the context of its request when it is closed.
type answer struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close closes the body.
func (a *answer) Close() error {
	defer a.end(nil)
	return a.ReadCloser.Close()
}

// reads reports whether requests of a method change nothing. An exec by WebSocket is a GET that does change something,
// so its sender has to call Check.
func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}
