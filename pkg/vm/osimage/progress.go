package osimage

import (
	"time"
)

// progress reports the progress of a download.
type progress struct {
	tell  func(string, ...any)
	what  string
	every time.Duration

	last       time.Time
	lastOffset int64
}

// begin starts the measurement at an offset.
func (p *progress) begin(offset, total int64) {
	p.last, p.lastOffset = time.Now(), offset
	switch {
	case total >= 0 && offset > 0:
		p.tell("%s: resuming at %.1f of %.1f MiB", p.what, mebi(offset), mebi(total))
	case total >= 0:
		p.tell("%s: downloading %.1f MiB", p.what, mebi(total))
	default:
		p.tell("%s: downloading", p.what)
	}
}

// at reports an offset if it is time to. The total is below 0 if it is unknown.
func (p *progress) at(offset, total int64) {
	elapsed := time.Since(p.last)
	if elapsed < p.every {
		return
	}
	rate := mebi(offset-p.lastOffset) / elapsed.Seconds()
	if total > 0 {
		p.tell("%s: %d %%, %.1f of %.1f MiB, %.1f MiB/s", p.what, offset*100/total, mebi(offset), mebi(total), rate)
	} else {
		p.tell("%s: %.1f MiB, %.1f MiB/s", p.what, mebi(offset), rate)
	}
	p.last, p.lastOffset = time.Now(), offset
}

func mebi(n int64) float64 { return float64(n) / (1 << 20) }
