package tenant

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// Line copies bytes between its clients and an API server unless it is cut.
type Line struct {
	// Address is where clients connect.
	Address string

	listener net.Listener
	target   string
	// delay is the delay of everything that the server sends.
	delay time.Duration

	mu          sync.Mutex
	down, hangs bool
	// changes is signaled when hangs changes.
	changes *sync.Cond
	open    map[net.Conn]bool
}

// NewLine starts a line to the target. Close it when done.
func NewLine(ctx context.Context, target string, delay time.Duration) (*Line, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{Address: listener.Addr().String(), listener: listener, target: target, delay: delay, open: map[net.Conn]bool{}}
	l.changes = sync.NewCond(&l.mu)
	go l.serve()
	return l, nil
}

// Close closes the line and all its connections.
func (l *Line) Close() {
	_ = l.listener.Close() // this ends serve
	l.Cut()
}

func (l *Line) serve() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil || !l.keep(c, server) {
			_ = c.Close() // as if there were no server
			if server != nil {
				_ = server.Close() // it has not been used
			}
			continue
		}
		go l.copy(server, c, 0)
		go l.copy(c, server, l.delay)
	}
}

func (l *Line) keep(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false
	}
	for _, c := range ends {
		l.open[c] = true
	}
	return true
}

// chunk is in transit until due.
type chunk struct {
	bytes []byte
	due   time.Time
}

// copy forwards what it reads, each piece after the delay, as a long line does: a piece does not wait for the one
// before.
func (l *Line) copy(to, from net.Conn, delay time.Duration) {
	way := make(chan chunk, 1000)
	go func() {
		defer to.Close()
		defer from.Close()
		for c := range way {
			time.Sleep(time.Until(c.due))
			l.awaitAnswers()
			if _, err := to.Write(c.bytes); err != nil {
				break
			}
		}
		for range way { // the reader is not blocked
		}
	}()
	defer close(way)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		way <- chunk{bytes: bytes.Clone(buffer[:n]), due: time.Now().Add(delay)}
	}
}

// Cut closes all connections and accepts no others until Restore.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.hangs = true, false
	l.changes.Broadcast()
	for c := range l.open {
		_ = c.Close() // it may have been closed before
	}
	clear(l.open)
}

// Restore accepts connections again.
func (l *Line) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.hangs = false, false
	l.changes.Broadcast()
}

// Hang keeps what both ends send until Restore, as a server does that accepts connections and never answers.
func (l *Line) Hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangs = true
}

// awaitAnswers waits while the line hangs.
func (l *Line) awaitAnswers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.hangs {
		l.changes.Wait()
	}
}
