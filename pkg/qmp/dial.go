package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Pauses between two attempts to connect.
const (
	minPause = time.Millisecond
	maxPause = 200 * time.Millisecond
)

// pause is a sixteenth of what has been waited already: whoever waits does not wait much longer than has to be.
func pause(waited time.Duration) time.Duration { return min(max(minPause, waited/16), maxPause) }

// Dial connects to the monitor socket at path, reads QEMU's greeting and negotiates no capabilities. It tries again until
// ctx ends for as long as nobody listens: QEMU makes the socket a moment after its start. A monitor talks to one client
// at a time; while another holds it, Dial waits for the greeting until ctx ends. A listener that does not speak QMP is a
// ProtocolError at once.
func Dial(ctx context.Context, path string, options ...Option) (*Client, error) {
	begin := time.Now()
	for {
		c, err := dialOnce(ctx, path, options...)
		if err == nil || !isTooEarly(err) {
			return c, err
		}
		select {
		case <-time.After(pause(time.Since(begin))):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// dialOnce connects to a socket that exists and has somebody at its other end.
func dialOnce(ctx context.Context, path string, options ...Option) (*Client, error) {
	conn, err := net.Dial("unix", path) // waits for nobody
	if err != nil {
		return nil, fmt.Errorf("connecting to the monitor: %w", err)
	}
	c, err := greet(ctx, conn, options...)
	if err != nil {
		return nil, fmt.Errorf("greeting the monitor %s: %w", path, err)
	}
	return c, nil
}

// greet makes a client of a connection: the monitor takes commands after the negotiation of capabilities, of which none
// is wanted.
func greet(ctx context.Context, conn net.Conn, options ...Option) (*Client, error) {
	c := newClient(conn, options...)
	err := c.awaitGreeting(ctx)
	if err == nil {
		err = c.Execute(ctx, "qmp_capabilities", nil, nil)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Client) awaitGreeting(ctx context.Context) error {
	select {
	case <-c.greeted:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return fmt.Errorf("no greeting, does another client hold the monitor? %w", ctx.Err())
	}
}

// isTooEarly says whether a further attempt may find a monitor: there is no socket yet, nobody listens yet (or any more),
// too many wait to be accepted, or QEMU ended a moment after it accepted.
func isTooEarly(err error) bool {
	var broken *ProtocolError
	if errors.Is(err, ErrClosed) {
		return !errors.As(err, &broken)
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}
