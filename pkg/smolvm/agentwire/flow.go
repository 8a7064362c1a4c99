package agentwire

import (
	"fmt"
	"io"
	"sync"
)

// inbox is a stream of data that the other side sends. It holds at most a window of it.
type inbox struct {
	mu   sync.Mutex
	wake sync.Cond
	// data was received and not read yet; last is set when no more follows.
	data []byte
	last bool
	// err ends the stream at once, without the data.
	err error
	// granted is what the other side may still send, and owed what was read and not granted again.
	granted, owed int
	// credit tells the other side that it may send more. It may block.
	credit func(n int)
}

func newInbox(credit func(int)) *inbox {
	b := &inbox{granted: window, credit: credit}
	b.wake.L = &b.mu
	return b
}

// put adds data. It never blocks. The error is the other side's fault.
func (b *inbox) put(data []byte, last bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(data) > b.granted {
		return fmt.Errorf("%w: it sends more than it may", errProtocol)
	}
	if b.last {
		return fmt.Errorf("%w: it sends after the end", errProtocol)
	}
	b.granted -= len(data)
	if b.err == nil {
		b.data = append(b.data, data...)
	}
	b.last = last
	b.wake.Broadcast()
	return nil
}

// Read returns data, io.EOF after the last of it, or the error of close.
func (b *inbox) Read(p []byte) (int, error) {
	n, grant, err := b.take(p)
	if grant > 0 {
		b.credit(grant)
	}
	return n, err
}

func (b *inbox) take(p []byte) (n, grant int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.data) == 0 && !b.last {
		b.wake.Wait()
	}
	switch {
	case b.err != nil:
		return 0, 0, b.err
	case len(b.data) == 0:
		return 0, 0, io.EOF
	}
	n = copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil
	}
	if b.owed += n; b.owed >= window/4 && !b.last {
		grant = b.owed
		b.granted, b.owed = b.granted+grant, 0
	}
	return n, grant, nil
}

// end ends the stream after the data that is there.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = true
	b.wake.Broadcast()
}

// close ends the stream at once, for a reason.
func (b *inbox) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err, b.data = err, nil
	}
	b.wake.Broadcast()
}

// outbox is a stream of data to the other side.
type outbox struct {
	mu      sync.Mutex
	wake    sync.Cond
	credits int
	err     error
	// send sends a chunk. It may block.
	send func(data []byte, last bool) error
}

func newOutbox(send func([]byte, bool) error) *outbox {
	o := &outbox{credits: window, send: send}
	o.wake.L = &o.mu
	return o
}

// Write sends data as the other side allows it.
func (o *outbox) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		n, err := o.reserve(min(len(p)-sent, MaxChunk))
		if err == nil {
			err = o.send(p[sent:sent+n], false)
		}
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}

// finish says that no more data follows.
func (o *outbox) finish() error {
	o.mu.Lock()
	err := o.err
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return o.send(nil, true)
}

// reserve waits until at least one and at most n bytes may be sent.
func (o *outbox) reserve(n int) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.credits == 0 {
		o.wake.Wait()
	}
	if o.err != nil {
		return 0, o.err
	}
	n = min(n, o.credits)
	o.credits -= n
	return n, nil
}

// add allows n more bytes. The error is the other side's fault.
func (o *outbox) add(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n <= 0 || n > window-o.credits {
		return fmt.Errorf("%w: it allows more than a window", errProtocol)
	}
	o.credits += n
	o.wake.Broadcast()
	return nil
}

// close makes all writes end with an error.
func (o *outbox) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.wake.Broadcast()
}
