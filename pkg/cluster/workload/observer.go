package workload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// RoundTrip sends a request and records what the result says about the API server, because client-go hides much of that
// and retries, up to a minute later.
func (l *link) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "true" {
		return l.sendWatch(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	response, err := l.way.RoundTrip(identified(ctx, request))
	if err != nil {
		cancel()
		l.noteFailure(request.Context(), err)
		return nil, err
	}
	if request.Method == http.MethodGet {
		l.noteStatus(response.StatusCode)
	}
	// client-go would sleep and retry, up to ten times, before it reports that an eviction is refused by a budget or
	// that the API server is overloaded. Callers back off themselves, and have other clusters to work on.
	response.Header.Del("Retry-After")
	response.Body = &answer{ReadCloser: response.Body, cancel: cancel}
	l.guardAnswer(request, response)
	return response, nil
}

// sendWatch sends a watch. Its errors hide their cause: after a refused connection or a 429 the reflector would sleep
// for up to a minute without checking its context.
func (l *link) sendWatch(request *http.Request) (*http.Response, error) {
	response, err := l.way.RoundTrip(identified(request.Context(), request))
	if err != nil {
		l.noteFailure(request.Context(), err)
		return nil, errors.New(err.Error())
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		_ = response.Body.Close() // only its status matters
		err := &statusError{code: response.StatusCode}
		l.noteFailure(request.Context(), err)
		return nil, err
	case http.StatusOK:
		l.guardWatch(request, response)
		l.noteWatches(1, nil)
		response.Body = &watch{ReadCloser: response.Body, link: l, request: request.Context()}
	default:
		l.noteStatus(response.StatusCode)
		refusal(response)
	}
	return response, nil
}

// userAgent is the operator's user agent.
var userAgent = rest.DefaultKubernetesUserAgent()

func identified(ctx context.Context, request *http.Request) *http.Request {
	clone := request.Clone(ctx)
	if clone.Header.Get("User-Agent") == "" {
		clone.Header.Set("User-Agent", userAgent)
	}
	return clone
}

// answer cancels the timeout of its request when it is closed.
type answer struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body.
func (a *answer) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

// watch is the body of a watch. It is counted until it ends.
type watch struct {
	io.ReadCloser
	link    *link
	request context.Context // it shows whether the end was intended
	once    sync.Once
}

// Read records the end of the watch. A healthy server ends a watch every few minutes.
func (w *watch) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		w.ended(err)
	}
	return n, err
}

// Close ends the watch.
func (w *watch) Close() error {
	w.ended(nil)
	return w.ReadCloser.Close()
}

func (w *watch) ended(err error) {
	if errors.Is(err, io.EOF) || w.request.Err() != nil {
		err = nil
	}
	w.once.Do(func() { w.link.noteWatches(-1, err) })
}

// noteStatus records a response that says something about the API server itself. Responses to writes are ignored,
// because an admission plugin may cause a 403 or 500.
func (l *link) noteStatus(code int) {
	if ofStatus(code) != Other {
		l.noteWatches(0, &statusError{code: code})
	}
}

// noteFailure records that a request failed, unless its caller canceled it.
func (l *link) noteFailure(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		l.noteWatches(0, err)
	}
}

func (l *link) noteWatches(more int, failure error) {
	l.mu.Lock()
	l.watches += more
	if failure != nil && !errors.Is(l.failure, errResponseTooLarge) { // errResponseTooLarge is the cause of the other errors
		l.failure = failure
	}
	l.mu.Unlock()
	select {
	case l.happened <- struct{}{}:
	default:
	}
}

// tally returns how many watches are open and the last failure since the last call.
func (l *link) tally() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failure := l.failure
	l.failure = nil
	return l.watches, failure
}
