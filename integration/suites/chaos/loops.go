package chaos

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// countingPeriod is the period in which requests are counted, and the others are the counts that the judge calls an
// endless loop. An operator that repeats itself, or alternates between two statuses, sends sameMost equal writes within
// seconds. A status that follows real progress differs from the last one each time, but even then there is a bound:
// simulated machines are replaced in 3 s, with some 15 changes of status each, so writesMost is three times the busiest
// rollout.
const (
	countingPeriod = 10 * time.Second
	sameMost       = 20
	readsMost      = 50
	writesMost     = 200
)

// volatile matches what differs between two writes that say the same.
var volatile = regexp.MustCompile(`"(resourceVersion|lastTransitionTime)":"[^"]*",?`)

// requestCounter counts the requests of one life of the operator to detect endless loops.
type requestCounter struct {
	mu   sync.Mutex
	sent map[string][]time.Time
	// most is the count of the request that came closest to its limit, what.
	most, limit int
	what        string
}

// count counts one request. It reports the limit that the request has reached, once each time.
func (r *requestCounter) count(request *http.Request, now time.Time) (what string, limit int) {
	what = request.Method + " " + request.URL.Path
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case request.Method == http.MethodGet:
		return what, r.add(what, readsMost, now)
	case request.Method != http.MethodPost: // a POST creates another object each time
		if reached := r.add(what, writesMost, now); reached > 0 {
			return what, reached
		}
	}
	what += fmt.Sprintf(" (body %x)", digest(request))
	return what, r.add(what, sameMost, now)
}

// add counts what, and returns limit if it was just reached, else 0.
func (r *requestCounter) add(what string, limit int, now time.Time) int {
	sent := append(r.sent[what], now)
	for now.Sub(sent[0]) > countingPeriod {
		sent = sent[1:]
	}
	r.sent[what] = sent
	if len(sent)*max(r.limit, 1) > r.most*limit {
		r.most, r.limit, r.what = len(sent), limit, what
	}
	if len(sent) == limit {
		return limit
	}
	return 0
}

// closest returns the request that came closest to its limit, and its count.
func (r *requestCounter) closest() (most, limit int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most, r.limit, r.what
}

// digest is equal for writes that say the same.
func digest(request *http.Request) uint32 {
	if request.GetBody == nil {
		return 0
	}
	body, err := request.GetBody()
	if err != nil {
		return 0
	}
	text, _ := io.ReadAll(body) // it is in memory
	return crc32.ChecksumIEEE(volatile.ReplaceAll(text, nil))
}
