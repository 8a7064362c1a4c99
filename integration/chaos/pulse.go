package chaos

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"sync"
	"time"
)

// pulseOf is the time in which requests are counted that are the same, and pulseMost how many there may be of one whatever happens: an operator
// that begins anew, or to which everything happens again, asks several times a second.
const (
	pulseOf   = 10 * time.Second
	pulseMost = 50
)

// pulse counts the requests of one life of the operator, to find out whether it goes round in circles.
type pulse struct {
	mu   sync.Mutex
	sent map[string][]time.Time
	// most is how many there were of the busiest one, what.
	most int
	what string
}

// count counts one more; objects that are made are told from each other by what they are. It says whether there were too many, once each
// time that it comes to that.
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

// busiest is which request was made most often, and how often.
func (p *pulse) busiest() (most int, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most, p.what
}
