package lab

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
)

// ErrCrashed is the error of an operator's requests once it has "crashed".
var ErrCrashed = errors.New("the operator has crashed")

// Crash passes the writes of an operator on up to the k-th, counted from 1, whose answer is lost. After that it passes
// nothing on. A crash before the next write has the same result: the process is new, and the API server has the same
// objects.
type Crash struct {
	K int

	mu     sync.Mutex
	writes int
}

// Crashed reports whether the k-th write was sent.
func (c *Crash) Crashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes >= c.K
}

// Transport is for InstanceOptions.Transport.
func (c *Crash) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		send, answer := c.judge(request)
		if !send {
			return nil, ErrCrashed
		}
		response, err := next.RoundTrip(request)
		if err == nil && !answer {
			discard(response)
			return nil, ErrCrashed
		}
		return response, err
	})
}

// judge counts the request and reports whether it is sent and whether its answer arrives.
func (c *Crash) judge(request *http.Request) (send, answer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes >= c.K {
		return false, false
	}
	if request.Method == http.MethodGet {
		return true, true
	}
	c.writes++
	return true, c.writes < c.K
}

func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, response.Body) // the answer is lost on purpose
	_ = response.Body.Close()
}

// Faults makes some of the writes of an operator fail: conflict, too many requests, server error, no answer before the
// request arrives and no answer after it was carried out.
type Faults struct {
	// Random decides, and Rate is the share of writes that fail.
	Random *rand.Rand
	Rate   float64

	mu      sync.Mutex
	stopped bool
	count   int
}

// Stop ends the faults.
func (f *Faults) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
}

// Count returns the number of faults so far.
func (f *Faults) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Transport is for InstanceOptions.Transport.
func (f *Faults) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		fault := f.pick(request)
		switch fault {
		case http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError:
			return Refusal(request, fault), nil
		case lostBefore:
			return nil, errLost
		case lostAfter:
			response, err := next.RoundTrip(request)
			if err == nil {
				discard(response)
			}
			return nil, errLost
		}
		return next.RoundTrip(request)
	})
}

// Faults that are not HTTP status codes.
const (
	lostBefore = -1
	lostAfter  = -2
)

var errLost = errors.New("the connection was lost")

func (f *Faults) pick(request *http.Request) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || request.Method == http.MethodGet || f.Random.Float64() > f.Rate {
		return 0
	}
	f.count++
	kinds := []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, lostBefore, lostAfter}
	return kinds[f.Random.IntN(len(kinds))]
}

// Refusal returns an error response of the API server. It has no Retry-After, so the test does not wait.
func Refusal(request *http.Request, code int) *http.Response {
	reason := map[int]string{http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError"}[code]
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"a fault of the test"}`, reason, code)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}
