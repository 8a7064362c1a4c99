// Package apiclock provides the time of the API server, because timestamps in objects are in that time. Otherwise, a
// machine whose clock is wrong, or jumps, would take a deletion of a moment ago for one of yesterday, and valid
// certificates for expired ones.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the clock of this machine, corrected as little as the API server's times allow. It advances steadily:
// setting the clock of the machine does not affect it.
type Clock struct {
	own   clock.PassiveClock
	began time.Time

	mu sync.Mutex
	// behind is how far this machine's clock is behind the API server's; negative if it is ahead.
	behind time.Duration
}

// granularity is that of the header Date (RFC 9110, 5.6.7), which is truncated.
const granularity = time.Second

// New returns a Clock that shows the time of own until the API server has responded.
func New(own clock.PassiveClock) *Clock { return &Clock{own: own, began: own.Now()} }

// Now returns the current time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steady().Add(c.behind)
}

// Difference returns the clock skew between this machine and the API server, as an absolute value.
func (c *Clock) Difference() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind.Abs()
}

// Since returns the time elapsed since t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// steady returns the time without correction.
func (c *Clock) steady() time.Time { return c.began.Add(c.own.Since(c.began)) }

// Transport returns a transport that learns from every response.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		asked := c.steady()
		response, err := next.RoundTrip(request)
		if err == nil {
			c.learn(asked, c.steady(), response.Header.Get("Date"))
		}
		return response, err
	})
}

// learn uses the fact that the API server's clock showed date at some moment between asked and answered.
func (c *Clock) learn(asked, answered time.Time, date string) {
	shown, err := http.ParseTime(date)
	if err != nil {
		return // it is not an API server, or does not report the time
	}
	least, most := shown.Sub(answered), shown.Add(granularity).Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = min(max(0, least), most)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
