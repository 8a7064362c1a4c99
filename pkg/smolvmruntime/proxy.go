package smolvmruntime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// maxBody is how many bytes a request may have: as many as smolvm takes.
	maxBody = 2 << 20
	// bodyTime bounds how long a client takes to send a body.
	bodyTime = 30 * time.Second
	// answerTime bounds how long smolvm takes to answer; smolvm's own bound is 300 seconds. Streams have none.
	answerTime = 330 * time.Second
	// writeTime bounds how long a client may not read.
	writeTime = 30 * time.Second
	// maxAnswerHeader is how many bytes the header of smolvm's answer may have.
	maxAnswerHeader = 64 << 10
	// maxCalls and maxStreams are how many requests to smolvm there may be at a time.
	maxCalls, maxStreams = 64, 128

	traceHeader = "X-Trace-Id"
	typeHeader  = "Content-Type"
)

// answerHeaders are those of smolvm's answers that are passed on.
var answerHeaders = []string{"Allow", "Cache-Control", "Content-Length", typeHeader, "Retry-After", traceHeader}

// trace is a trace id that is passed on.
var trace = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// proxy passes requests on to smolvm, and answers as smolvm answers.
type proxy struct {
	log            *slog.Logger
	reverse        *httputil.ReverseProxy
	calls, streams chan struct{}
	// untilEnd returns a context that ends when the agent does, if not before.
	untilEnd func(context.Context) (context.Context, context.CancelFunc)
}

type targetKey struct{}

// newProxy returns a proxy to smolvm. Streams end with the context; other requests may be completed.
func newProxy(ctx context.Context, smolvm socket, log *slog.Logger) *proxy {
	p := &proxy{log: log, calls: make(chan struct{}, maxCalls), streams: make(chan struct{}, maxStreams)}
	p.untilEnd = func(request context.Context) (context.Context, context.CancelFunc) {
		request, cancel := context.WithCancel(request)
		forget := context.AfterFunc(ctx, cancel)
		return request, func() { forget(); cancel() }
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      smolvm.transport(),
		FlushInterval:  -1,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler:   p.fail,
		ModifyResponse: func(answer *http.Response) error { clean(answer); return nil },
	}
	return p
}

// rewrite makes the request that smolvm gets. Of the client's headers it has two.
func rewrite(r *httputil.ProxyRequest) {
	t, _ := r.In.Context().Value(targetKey{}).(target)
	header := http.Header{}
	if values := r.In.Header.Values(typeHeader); len(values) == 1 && t.route.body {
		header.Set(typeHeader, values[0])
	}
	if id := r.In.Header.Get(traceHeader); trace.MatchString(id) {
		header.Set(traceHeader, id)
	}
	header["User-Agent"] = nil
	r.Out.Method, r.Out.Host = t.route.method, "localhost"
	r.Out.URL = &url.URL{Scheme: "http", Host: "localhost", Path: t.path, RawQuery: t.query.Encode()}
	r.Out.Header, r.Out.Trailer = header, nil
}

// clean drops headers of smolvm's that are about its connection, or that make browsers do something.
func clean(answer *http.Response) {
	for name := range answer.Header {
		if !slices.Contains(answerHeaders, name) {
			answer.Header.Del(name)
		}
	}
	answer.Trailer = nil
}

// Pass answers a request with smolvm's answer.
func (p *proxy) Pass(w http.ResponseWriter, r *http.Request, t target) {
	slots := p.calls
	if t.streams() {
		slots = p.streams
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		fail(w, api.Errorf(api.CodeUnavailable, "%d requests are under way, which is the most", cap(slots)))
		return
	}
	body, err := bodyOf(w, r, t.route)
	if err != nil {
		fail(w, err)
		return
	}
	ctx := context.WithValue(r.Context(), targetKey{}, t)
	var cancel context.CancelFunc
	if t.streams() {
		ctx, cancel = p.untilEnd(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, answerTime)
	}
	defer cancel()
	out := r.WithContext(ctx)
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	// The reverse proxy panics if smolvm ends in the middle of an answer; package http then cuts the client's off.
	p.reverse.ServeHTTP(&patient{w}, out)
}

// bodyOf reads the whole body, so that smolvm never gets half of one.
func bodyOf(w http.ResponseWriter, r *http.Request, to *route) ([]byte, error) {
	// The answer may take long. A deadline that passes meanwhile would cancel the request.
	defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }()
	if !to.body {
		if r.Body != nil && r.Body != http.NoBody {
			// Else package http waits for it before it answers.
			w.Header().Set("Connection", "close")
		}
		return nil, nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &api.Error{Code: api.CodeBadRequest, HTTPStatus: http.StatusRequestEntityTooLarge, Message: "the request has more than 2 MiB"}
	case err != nil:
		return nil, api.Errorf(api.CodeBadRequest, "the request cannot be read")
	}
	return text, nil
}

// fail answers when smolvm does not.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	t, _ := r.Context().Value(targetKey{}).(target)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, api.Errorf(api.CodeTimeout, "smolvm has not answered within %s", answerTime))
	case errors.Is(err, context.Canceled):
		// The client has gone, or the agent ends.
		fail(w, api.Errorf(api.CodeUnavailable, "the runtime ends"))
	default:
		p.log.Error("smolvm does not answer", "path", t.path, "error", err)
		fail(w, api.Errorf(api.CodeUnavailable, "smolvm does not answer on this node"))
	}
}

// patient gives a client some time for each part of an answer, and cuts it off if it does not read. Streams have no end, so
// there is no time for the whole.
type patient struct{ http.ResponseWriter }

// Write implements io.Writer.
func (p *patient) Write(part []byte) (int, error) {
	defer p.limit()()
	return p.ResponseWriter.Write(part)
}

// FlushError is for http.ResponseController.
func (p *patient) FlushError() error {
	defer p.limit()()
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// limit sets the deadline of a part, and returns what removes it: with HTTP/2, one that passes while there is nothing to
// write ends the stream, too.
func (p *patient) limit() (remove func()) {
	control := http.NewResponseController(p.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
