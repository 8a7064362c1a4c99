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

// Request is one request of the operator, watches and their like apart.
type Request struct {
	Method, Path string
	Status       int
	At           time.Time

	body []byte // of a POST, whose path does not name the object
}

// Write says whether the request was to change something.
func (r Request) Write() bool { return r.Method != http.MethodGet }

// String is the request as a line.
func (r Request) String() string { return fmt.Sprintf("%s %s %d", r.Method, r.Path, r.Status) }

// Recorder remembers requests.
type Recorder struct {
	mu       sync.Mutex
	requests []Request
	watches  int
}

func (r *Recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		body := posted(request)
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

// posted is a copy of the body of a POST.
func posted(request *http.Request) []byte {
	if request.Method != http.MethodPost || request.GetBody == nil {
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

// All are the requests so far.
func (r *Recorder) All() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

// Reads and Writes are the requests of either kind.
func (r *Recorder) Reads() []Request { return r.pick(func(q Request) bool { return !q.Write() }) }

// Writes are the requests that were to change something.
func (r *Recorder) Writes() []Request { return r.pick(Request.Write) }

// Of are the requests that concern a cluster: its id, which must be part of no other word, stands in the path or in what
// was posted.
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

// Reset forgets what was recorded.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.watches = nil, 0
}

// Watches is how many watches were begun.
func (r *Recorder) Watches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}
