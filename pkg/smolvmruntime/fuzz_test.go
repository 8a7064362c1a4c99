package smolvmruntime

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// smolvmPath is every path that may reach smolvm.
var smolvmPath = regexp.MustCompile(`^/api/v1/machines(/[A-Za-z0-9][A-Za-z0-9_-]{0,127}(/(start|stop|resize|exec|exec/stream|logs|egress-events))?)?$`)

// recordingSmolvm checks what reaches smolvm.
type recordingSmolvm struct {
	t     *testing.T
	asked int
}

// RoundTrip implements http.RoundTripper.
func (s *recordingSmolvm) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked++
	for name, values := range r.Header {
		if len(values) > 0 && name != "Content-Type" && name != "X-Trace-Id" {
			s.t.Errorf("smolvm got the header %s: %q", name, values)
		}
	}
	var body []byte
	var err error
	if r.Body != nil {
		body, err = io.ReadAll(r.Body)
	}
	if err != nil || int64(len(body)) != r.ContentLength || len(body) > maxBody {
		s.t.Errorf("smolvm got %d bytes of %d: %v", len(body), r.ContentLength, err)
	}
	if !smolvmPath.MatchString(r.URL.EscapedPath()) || r.URL.Host != "localhost" || r.Host != "localhost" {
		s.t.Errorf("smolvm got %s of %s", r.URL, r.Host)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodDelete {
		s.t.Errorf("smolvm got the method %s", r.Method)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: r}, nil
}

// FuzzRequests gives a node bytes as a connection brings them.
func FuzzRequests(f *testing.F) {
	token := "Authorization: Bearer " + secret + "\r\n"
	for _, seed := range []string{
		"GET /api/v1/machines HTTP/1.1\r\nHost: x\r\n" + token + "\r\n",
		"POST /api/v1/machines/m/exec HTTP/1.1\r\nHost: x\r\n" + token + "Content-Type: application/json\r\nX-Trace-Id: a\r\nContent-Length: 2\r\n\r\n{}",
		"POST /api/v1/machines/m/exec/stream HTTP/1.1\r\nHost: x\r\n" + token + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n",
		"GET /api/v1/machines/%2e%2e/logs?follow=1;tail=2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, X-A\r\nUpgrade: h2c\r\nX-A: b\r\n" + token + "\r\n",
		"CONNECT /api/v1/machines/m HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", "DELETE http://evil/api/v1/machines/m HTTP/1.0\r\n" + token + "\r\n",
		"PATCH /api/v1/identity HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n" + token + "\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		smolvm := &recordingSmolvm{t: t}
		n := &nodeAPI{auth: fixedToken(secret), log: quiet, count: newMeters().request, proxy: newProxy(t.Context(), socket{path: "/nowhere"}, quiet)}
		n.proxy.reverse.Transport = smolvm
		answer := httptest.NewRecorder()
		began := time.Now()
		n.ServeHTTP(answer, request)
		if smolvm.asked > 1 || smolvm.asked == 1 && bearer(request.Header) != secret {
			t.Errorf("smolvm was asked %d times by a client with the token %q", smolvm.asked, bearer(request.Header))
		}
		if len(n.proxy.calls)+len(n.proxy.streams) > 0 || time.Since(began) > 10*time.Second {
			t.Error("a request has not ended")
		}
	})
}
