package ociimage

import (
	"fmt"
	"sync"
	"time"
)

// progress tells how far a pull is. Several blobs come at a time; it tells one thing at a time.
type progress struct {
	what  string
	every time.Duration

	mu   sync.Mutex
	tell func(string)
	// total and done are bytes; last is when done was reported, as before.
	total, done, before int64
	last                time.Time
}

// say tells a sentence about the image.
func (p *progress) say(format string, arguments ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(format, arguments...)
}

func (p *progress) sayLocked(format string, arguments ...any) {
	if p.tell != nil {
		p.tell(p.what + ": " + fmt.Sprintf(format, arguments...))
	}
}

// begin starts to measure a pull of a number of bytes.
func (p *progress) begin(layers int, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done, p.before, p.last = total, 0, 0, time.Now()
	p.sayLocked("pulling %d layers, %.1f MiB", layers, mebi(total))
}

// add counts bytes that came, or, if negative, that have to be downloaded again. It reports how many there are if it
// is time to.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	elapsed := time.Since(p.last)
	if elapsed < p.every || p.total == 0 {
		return
	}
	p.sayLocked("%d %%, %.1f of %.1f MiB, %.1f MiB/s", p.done*100/p.total, mebi(p.done), mebi(p.total), mebi(max(0, p.done-p.before))/elapsed.Seconds())
	p.last, p.before = time.Now(), p.done
}

func mebi(n int64) float64 { return float64(n) / (1 << 20) }
