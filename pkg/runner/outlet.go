package runner

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// outletSize is how much an outlet keeps for a reader that does not read, in bytes.
	outletSize = 1 << 20
	// outletFlush is how long the end of a runner waits for such a reader.
	outletFlush = time.Second
)

// Outlet is a writer that never waits. Behind stdout there is a container runtime, and while that is stuck or being
// updated nobody reads: a guest that waits for its console stands still, and so would a runner that waits for its log.
// What finds no room is lost, and the next line says how much that was.
type Outlet struct {
	writer io.Writer
	done   chan struct{}

	mu     sync.Mutex
	more   *sync.Cond
	kept   []byte
	lost   int
	closed bool
}

// NewOutlet makes an outlet in front of a writer.
func NewOutlet(writer io.Writer) *Outlet {
	o := &Outlet{writer: writer, done: make(chan struct{})}
	o.more = sync.NewCond(&o.mu)
	go o.pass()
	return o
}

// Write takes p, or loses it. It never fails.
func (o *Outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.kept)+len(p) > outletSize {
		o.lost += len(p)
		return len(p), nil
	}
	if o.lost > 0 {
		o.kept = fmt.Appendf(o.kept, "\n[%d bytes were dropped here because the reader was too slow]\n", o.lost)
		o.lost = 0
	}
	o.kept = append(o.kept, p...)
	o.more.Signal()
	return len(p), nil
}

// pass writes what is kept until the outlet is closed and nothing is left.
func (o *Outlet) pass() {
	defer close(o.done)
	for part := o.take(nil); part != nil; part = o.take(part) {
		// There is nobody to tell that nobody listens.
		_, _ = o.writer.Write(part)
	}
}

// take waits for something to write and returns it, nil when nothing will come. What spare holds is kept in from then on.
func (o *Outlet) take(spare []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.kept) == 0 {
		if o.closed {
			return nil
		}
		o.more.Wait()
	}
	part := o.kept
	o.kept = spare[:0]
	return part
}

// Close gives the reader a second to take what is left.
func (o *Outlet) Close() error {
	o.mu.Lock()
	o.closed = true
	o.more.Signal()
	o.mu.Unlock()
	select {
	case <-o.done:
		return nil
	case <-time.After(outletFlush):
		return fmt.Errorf("the reader has not read anything for %s", outletFlush)
	}
}
