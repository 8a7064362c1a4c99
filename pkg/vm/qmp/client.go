// Package qmp speaks the QEMU machine protocol (QEMU: docs/interop/qmp-spec.txt) with one running QEMU: commands with
// typed replies, events, and changes of a live machine that end when QEMU is seen to be in the requested state.
package qmp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Client is a connection to a monitor of QEMU. Its methods are safe for concurrent use.
type Client struct {
	conn     net.Conn
	patience Patience
	// unsafeUnplug is set by WithUnsafeUnplug.
	unsafeUnplug bool

	greeted  chan struct{} // closed by the greeting
	calls    chan *call    // to the writer
	done     chan struct{} // closed when the connection has ended
	changing chan struct{} // holds a token during a live change

	mu            sync.Mutex
	lastID        uint64
	pending       map[uint64]*call
	subscriptions map[*Subscription]struct{}
	err           error // why the connection ended
}

// Option changes how a Client works.
type Option func(*Client)

// WithPatience sets how long live changes wait; zero fields keep their defaults.
func WithPatience(patience Patience) Option {
	return func(c *Client) { c.patience = patience.withDefaults() }
}

// newClient starts to read from and write to a connection.
func newClient(conn net.Conn, options ...Option) *Client {
	c := &Client{
		conn:          conn,
		patience:      Patience{}.withDefaults(),
		greeted:       make(chan struct{}),
		calls:         make(chan *call),
		done:          make(chan struct{}),
		changing:      make(chan struct{}, 1),
		pending:       map[uint64]*call{},
		subscriptions: map[*Subscription]struct{}{},
	}
	for _, option := range options {
		option(c)
	}
	go c.read()
	go c.write()
	return c
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, and nil before that: ErrClosed, wrapping a ProtocolError or the error of
// reading from the socket.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, fails the waiting calls and ends all subscriptions; events that were not received yet are
// lost. QEMU continues. Closing twice is not an error.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	for _, s := range c.subscribed() {
		s.Close()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the QMP connection: %w", err)
	}
	return nil
}

// read handles what QEMU sends until the connection ends.
func (c *Client) read() {
	scanner := newScanner(c.conn)
	greeted := false
	var err error
	for err == nil && scanner.Scan() {
		err = c.handle(scanner.Bytes(), !greeted)
		greeted = true
	}
	if err == nil {
		err = scanner.Err()
	}
	if errors.Is(err, bufio.ErrTooLong) {
		err = notQMP(nil, fmt.Errorf("a line is longer than %d bytes", maxLine))
	}
	_ = c.conn.Close() // the error that matters is the one that ended it
	c.end(err)
}

// handle handles one line from QEMU.
func (c *Client) handle(line []byte, isFirst bool) error {
	m, err := parse(line)
	switch {
	case err != nil:
		return err
	case isFirst != (m.Greeting != nil):
		return notQMP(line, errors.New("the greeting is expected first, and once"))
	case isFirst:
		close(c.greeted)
	case m.Event != "":
		c.publish(Event{Name: m.Event, Data: m.Data, Time: m.Timestamp.time()})
	case !c.answer(m, line):
		return notQMP(line, errors.New("nothing was asked under this id"))
	}
	return nil
}

// end fails the waiting calls and ends the subscriptions once their events are received.
func (c *Client) end(cause error) {
	err := ErrClosed
	if cause != nil && !errors.Is(cause, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, waiting := range c.pending {
		waiting.reply <- reply{err: err}
	}
	clear(c.pending)
	for s := range c.subscriptions {
		s.end()
	}
	close(c.done)
}
