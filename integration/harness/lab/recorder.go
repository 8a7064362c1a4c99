package lab

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Request is one request of the operator. Watches and similar requests are not included.
type Request struct {
	Method, Path string
	Status       int
	At           time.Time

	body []byte // of a POST, whose path does not name the object; nil if bodies are not kept
}

// Write reports whether the request was a write.
func (r Request) Write() bool { return r.Method != http.MethodGet }

// String returns the request as a line.
func (r Request) String() string { return fmt.Sprintf("%s %s %d", r.Method, r.Path, r.Status) }

// Recorder records requests.
type Recorder struct {
	mu       sync.Mutex
	requests []Request
	watches  int
	bodiless bool
}

// Transport is for rest.Config.Wrap.
func (r *Recorder) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		body := r.posted(request)
		response, err := next.RoundTrip(request)
		r.mu.Lock()
		defer r.mu.Unlock()
		if request.URL.Query().Get("watch") != "" {
			r.watches++
			return response, err
		}
		record := Request{Method: request.Method, Path: request.URL.Path, At: time.Now(), body: body}
		if response != nil {
			record.Status = response.StatusCode
		}
		r.requests = append(r.requests, record)
		return response, err
	})
}

// DropBodies keeps no bodies from now on: they take more memory than what an operator caches. Of then finds only the
// requests whose path names the object.
func (r *Recorder) DropBodies() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodiless = true
}

// posted returns a copy of the body of a POST, or nil if bodies are not kept.
func (r *Recorder) posted(request *http.Request) []byte {
	r.mu.Lock()
	bodiless := r.bodiless
	r.mu.Unlock()
	if bodiless || request.Method != http.MethodPost || request.GetBody == nil {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	return data
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// All returns the requests so far.
func (r *Recorder) All() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

// Reads returns the requests that were no writes.
func (r *Recorder) Reads() []Request { return r.pick(func(q Request) bool { return !q.Write() }) }

// Writes returns the requests that were writes.
func (r *Recorder) Writes() []Request { return r.pick(Request.Write) }

// Statuses returns the writes of a status.
func (r *Recorder) Statuses() []Request {
	return r.pick(func(q Request) bool { return q.Write() && strings.HasSuffix(q.Path, "/status") })
}

// Of returns the requests that concern a cluster: its path or the body of a POST contains the cluster's id, which must
// not be part of another word.
func (r *Recorder) Of(id string) []Request {
	return r.pick(func(q Request) bool { return strings.Contains(q.Path, id) || bytes.Contains(q.body, []byte(id)) })
}

func (r *Recorder) pick(want func(Request) bool) []Request {
	var picked []Request
	for _, q := range r.All() {
		if want(q) {
			picked = append(picked, q)
		}
	}
	return picked
}

// Reset removes all recorded requests.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.watches = nil, 0
}

// Watches returns how many watches were started.
func (r *Recorder) Watches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}
