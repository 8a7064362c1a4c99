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

// pulseOf is the period in which requests are counted, and the others are the counts that the judge calls an endless
// loop. An operator that repeats itself, or alternates between two statuses, sends sameMost equal writes within seconds.
// A status that follows real progress differs from the last one each time, but even then there is a bound: played
// machines are replaced in 3 s, with some 15 changes of status each, so writesMost is three times the busiest rollout.
const (
	pulseOf    = 10 * time.Second
	sameMost   = 20
	readsMost  = 50
	writesMost = 200
)

// volatile matches what differs between two writes that say the same.
var volatile = regexp.MustCompile(`"(resourceVersion|lastTransitionTime)":"[^"]*",?`)

// pulse counts the requests of one life of the operator to detect endless loops.
type pulse struct {
	mu   sync.Mutex
	sent map[string][]time.Time
	// most is the count of the request that came closest to its limit, what.
	most, limit int
	what        string
}

// count counts one request. It reports the limit that the request has reached, once each time.
func (p *pulse) count(request *http.Request, now time.Time) (what string, limit int) {
	what = request.Method + " " + request.URL.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case request.Method == http.MethodGet:
		return what, p.add(what, readsMost, now)
	case request.Method != http.MethodPost: // a POST creates another object each time
		if reached := p.add(what, writesMost, now); reached > 0 {
			return what, reached
		}
	}
	what += fmt.Sprintf(" (body %x)", digest(request))
	return what, p.add(what, sameMost, now)
}

// add counts what, and returns limit if it was just reached, else 0.
func (p *pulse) add(what string, limit int, now time.Time) int {
	sent := append(p.sent[what], now)
	for now.Sub(sent[0]) > pulseOf {
		sent = sent[1:]
	}
	p.sent[what] = sent
	if len(sent)*max(p.limit, 1) > p.most*limit {
		p.most, p.limit, p.what = len(sent), limit, what
	}
	if len(sent) == limit {
		return limit
	}
	return 0
}

// closest returns the request that came closest to its limit, and its count.
func (p *pulse) closest() (most, limit int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most, p.limit, p.what
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
