package workload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// RoundTrip sends a request and notes what it tells of the API server: client-go keeps much of that to itself and tries
// again, up to a minute later.
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
	// client-go would sleep and ask again, up to ten times, before it tells that a budget refuses or that the API server has too much to do.
	// Whoever asks has a pause of his own, and others to care for.
	response.Header.Del("Retry-After")
	response.Body = &answer{ReadCloser: response.Body, cancel: cancel}
	l.guardAnswer(request, response)
	return response, nil
}

// sendWatch sends a watch. Its errors do not show what they are made of: after a refused connection or a 429 the reflector
// would sleep for up to a minute without looking at its context.
func (l *link) sendWatch(request *http.Request) (*http.Response, error) {
	response, err := l.way.RoundTrip(identified(request.Context(), request))
	if err != nil {
		l.noteFailure(request.Context(), err)
		return nil, errors.New(err.Error())
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		_ = response.Body.Close() // its status says it all
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

// userAgent is how the operator names itself.
var userAgent = rest.DefaultKubernetesUserAgent()

func identified(ctx context.Context, request *http.Request) *http.Request {
	clone := request.Clone(ctx)
	if clone.Header.Get("User-Agent") == "" {
		clone.Header.Set("User-Agent", userAgent)
	}
	return clone
}

// answer ends its request's time when it has been read.
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
	request context.Context // it tells whether the end was wanted
	once    sync.Once
}

// Read notes the end of the watch. A server that ends one in good order does so every few minutes.
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

// noteStatus notes an answer that tells something of the API server itself. To a write it may say 403 or 500 because of an
// admission plugin, so writes are not looked at.
func (l *link) noteStatus(code int) {
	if ofStatus(code) != Other {
		l.noteWatches(0, &statusError{code: code})
	}
}

// noteFailure notes that a request was not answered, unless whoever sent it has lost interest.
func (l *link) noteFailure(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		l.noteWatches(0, err)
	}
}

func (l *link) noteWatches(more int, failure error) {
	l.mu.Lock()
	l.watches += more
	if failure != nil && !errors.Is(l.failure, errTooMuch) { // which is what the others come from
		l.failure = failure
	}
	l.mu.Unlock()
	select {
	case l.happened <- struct{}{}:
	default:
	}
}

// tally returns how many watches are open and the last failure since it was called last.
func (l *link) tally() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failure := l.failure
	l.failure = nil
	return l.watches, failure
}
