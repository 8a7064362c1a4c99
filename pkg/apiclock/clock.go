// Package apiclock tells the time of the API server, by which objects say when something happened to them. A machine whose clock is
// wrong, or jumps, would else take a deletion of a moment ago for one of yesterday, and certificates for expired ones.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the clock of this machine, corrected as little as what the API server says allows. It goes on as steadily as time does:
// setting the clock of the machine does not set it.
type Clock struct {
	own   clock.PassiveClock
	began time.Time

	mu sync.Mutex
	// behind is how far this machine's clock is behind the API server's; negative when it is ahead.
	behind time.Duration
}

// granularity is that of the header Date (RFC 9110, 5.6.7), which is cut off.
const granularity = time.Second

// New makes a Clock that tells the time of own until the API server has answered.
func New(own clock.PassiveClock) *Clock { return &Clock{own: own, began: own.Now()} }

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steady().Add(c.behind)
}

// Difference is how far this machine's clock is off that of the API server, whichever is wrong.
func (c *Clock) Difference() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind.Abs()
}

// Since is how long ago a time was.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// steady is the time without correction.
func (c *Clock) steady() time.Time { return c.began.Add(c.own.Since(c.began)) }

// Transport learns from every answer.
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

// learn takes into account that at some moment between two the API server's clock showed date.
func (c *Clock) learn(asked, answered time.Time, date string) {
	shown, err := http.ParseTime(date)
	if err != nil {
		return // it is no API server, or says nothing of the time
	}
	least, most := shown.Sub(answered), shown.Add(granularity).Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = min(max(0, least), most)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is for http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
