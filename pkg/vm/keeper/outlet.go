package keeper

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// outletSize is how much an outlet buffers for a slow reader, in bytes.
	outletSize = 1 << 20
	// outletFlush is how long the keeper waits for such a reader when it ends.
	outletFlush = time.Second
)

// Outlet is a writer that never blocks. Behind stdout there is a container runtime, and while it hangs or is being
// updated nothing reads: a guest that waits for its console would stop, and so would a keeper that waits for its log.
// Text that does not fit in the buffer is lost, and the next line says how much.
type Outlet struct {
	writer io.Writer
	done   chan struct{}

	mu     sync.Mutex
	more   *sync.Cond
	kept   []byte
	lost   int
	closed bool
}

// NewOutlet returns an outlet in front of a writer.
func NewOutlet(writer io.Writer) *Outlet {
	o := &Outlet{writer: writer, done: make(chan struct{})}
	o.more = sync.NewCond(&o.mu)
	go o.pass()
	return o
}

// Write buffers p, or drops it. It never fails.
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

// pass writes the buffer until the outlet is closed and nothing is left.
func (o *Outlet) pass() {
	defer close(o.done)
	for part := o.take(nil); part != nil; part = o.take(part) {
		// Without a reader the error cannot be reported.
		_, _ = o.writer.Write(part)
	}
}

// take waits for something to write and returns it, or nil if nothing will come. It reuses spare as the next buffer.
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

// Close gives the reader one second to take what is left.
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
