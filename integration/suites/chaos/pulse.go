package chaos

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"sync"
	"time"
)

// pulseOf is the period in which equal requests are counted, and pulseMost is how many are allowed in any case. An
// operator that restarts its work, or gets all events again, sends several a second.
const (
	pulseOf   = 10 * time.Second
	pulseMost = 50
)

// pulse counts the requests of one life of the operator to detect endless loops.
type pulse struct {
	mu   sync.Mutex
	sent map[string][]time.Time
	// most is the count of the busiest request, what.
	most int
	what string
}

// count counts one request. Requests that create objects are distinguished by their body. It reports once each time
// that the limit is reached.
func (p *pulse) count(request *http.Request, now time.Time) (what string, tooMany bool) {
	what = request.Method + " " + request.URL.Path
	if request.Method == http.MethodPost && request.GetBody != nil {
		if body, err := request.GetBody(); err == nil {
			text, _ := io.ReadAll(body) // it is in memory
			what += fmt.Sprintf(" (body %x)", crc32.ChecksumIEEE(text))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := append(p.sent[what], now)
	for now.Sub(sent[0]) > pulseOf {
		sent = sent[1:]
	}
	p.sent[what] = sent
	if len(sent) > p.most {
		p.most, p.what = len(sent), what
	}
	return what, len(sent) == pulseMost
}

// busiest returns the most frequent request and its count.
func (p *pulse) busiest() (most int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most, p.what
}
