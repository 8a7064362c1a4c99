package agentwire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// maxStale is how much an earlier session can have left in the stream before the welcome, in bytes, and maxWelcomes
	// how many hosts can have gone without reading theirs. A guest's port holds less.
	maxStale    = 4 << 20
	maxWelcomes = 64
)

// Client is the host's side of a session. It is safe for concurrent use. The guest may send anything: what does not
// follow the protocol ends the session, and the memory for it is bounded.
type Client struct {
	connection io.ReadWriteCloser
	out        chan []byte
	// done is closed when the session has ended, and then err says why.
	done chan struct{}
	err  error
	ends sync.Once
	// loops are the goroutines that read and write.
	loops sync.WaitGroup

	mu       sync.Mutex
	last     uint64
	requests map[uint64]*request
}

// Connect begins a session on the socket of the guest's port. It returns when the guest has answered, which may take as
// long as its boot does; ctx bounds that. It closes the connection if it fails.
func Connect(ctx context.Context, connection io.ReadWriteCloser) (*Client, error) {
	c := &Client{connection: connection, out: make(chan []byte, queue), done: make(chan struct{}), requests: map[uint64]*request{}}
	nonce := rand.Text()
	hello, err := opening(frame{Kind: kindHello, Session: nonce, Version: Version})
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	c.loops.Go(c.write)
	from := newReader(connection)
	select {
	case c.out <- hello:
		err = c.welcome(from, nonce)
	case <-c.done:
		err = c.err
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.end(err)
		c.loops.Wait()
		return nil, fmt.Errorf("waiting for the answer of the guest's agent: %w", c.err)
	}
	c.loops.Go(func() { c.end(c.read(from)) })
	return c, nil
}

// welcome reads up to the guest's answer to this session's hello.
func (c *Client) welcome(from *reader, nonce string) error {
	for range maxWelcomes {
		answer, err := first(from)
		if err != nil && !errors.Is(err, errProtocol) {
			return err
		}
		if err != nil || answer.Session != nonce {
			continue // an answer to an earlier host, or what is left of one
		}
		if answer.Kind == kindFail {
			return failure(answer)
		}
		if answer.Kind != kindWelcome || answer.Version != Version {
			return fmt.Errorf("%w: it answers %q of version %d", errProtocol, readable(string(answer.Kind)), answer.Version)
		}
		return nil
	}
	return fmt.Errorf("%w: it begins %d sessions and not this one", errProtocol, maxWelcomes)
}

// errLost is the error of a stream in which no session begins.
var errLost = errors.New("no session begins")

// first returns the first frame of the next session.
func first(from *reader) (frame, error) {
	if err := from.skip(maxStale); err != nil {
		return frame{}, err
	}
	text, err := from.next()
	for errors.Is(err, errMark) {
		text, err = from.next()
	}
	if err != nil {
		return frame{}, err
	}
	return decode(text)
}

// Close ends the session and all its requests, and closes the connection.
func (c *Client) Close() error {
	c.end(errors.New("it was closed"))
	c.loops.Wait()
	return nil
}

// Err returns why the session has ended, and nil before.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// end ends the session once.
func (c *Client) end(why error) {
	c.ends.Do(func() {
		// What closing says adds nothing: nothing more is expected of the connection.
		_ = c.connection.Close()
		c.err = fmt.Errorf("%w: %w", ErrEnded, why)
		close(c.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		for id, r := range c.requests {
			r.close(c.err)
			delete(c.requests, id)
		}
	})
}

func (c *Client) write() {
	for {
		select {
		case text := <-c.out:
			if _, err := c.connection.Write(text); err != nil {
				c.end(err)
				return
			}
		case <-c.done:
			return
		}
	}
}

// read takes in frames until the session ends. It blocks in nothing but reading.
func (c *Client) read(from *reader) error {
	for {
		text, err := from.next()
		if errors.Is(err, errMark) {
			return fmt.Errorf("%w: the agent has begun another session", errProtocol)
		}
		if err != nil {
			return err
		}
		f, err := decode(text)
		if err != nil {
			return err
		}
		if err := c.receive(f); err != nil {
			return err
		}
	}
}

func (c *Client) receive(f frame) error {
	if f.ID == 0 {
		if f.Kind == kindFail {
			return failure(f)
		}
		return fmt.Errorf("%w: %q is not about a request", errProtocol, readable(string(f.Kind)))
	}
	c.mu.Lock()
	r := c.requests[f.ID]
	if r != nil && f.Kind == kindEnd {
		delete(c.requests, f.ID)
	}
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("%w: there is no request %d", errProtocol, f.ID)
	}
	return r.receive(f)
}

func failure(f frame) error {
	if f.Error == nil {
		return errors.New("the guest's agent has given up")
	}
	return fmt.Errorf("the guest's agent has given up: %s", readable(f.Error.Message))
}

// send queues a frame. It ends with the request, too, if there is one.
func (c *Client) send(f frame, given <-chan struct{}) error {
	text, err := encode(f)
	if err != nil {
		return err
	}
	select {
	case c.out <- text:
		return nil
	case <-given:
		return errCancelled
	case <-c.done:
		return c.err
	}
}
