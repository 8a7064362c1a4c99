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

// pause returns a sixteenth of the time waited so far, so that the total wait is not much longer than necessary.
func pause(waited time.Duration) time.Duration { return min(max(minPause, waited/16), maxPause) }

// Dial connects to the monitor socket at path, reads QEMU's greeting and negotiates no capabilities. While nothing
// listens, it retries until ctx ends, because QEMU creates the socket a moment after its start. A monitor talks to one
// client at a time; while another client is connected, Dial waits for the greeting until ctx ends. If the listener does
// not speak QMP, Dial fails with a ProtocolError at once.
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

// dialOnce connects to a socket that exists and has a listener.
func dialOnce(ctx context.Context, path string, options ...Option) (*Client, error) {
	conn, err := net.Dial("unix", path) // does not wait for the peer
	if err != nil {
		return nil, fmt.Errorf("connecting to the monitor: %w", err)
	}
	c, err := greet(ctx, conn, options...)
	if err != nil {
		return nil, fmt.Errorf("greeting the monitor %s: %w", path, err)
	}
	return c, nil
}

// greet creates a client for a connection: the monitor accepts commands after the negotiation of capabilities, of which
// none is requested.
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

// isTooEarly reports whether a further attempt may find a monitor: there is no socket yet, nothing listens yet (or no
// longer), too many clients wait to be accepted, or QEMU ended a moment after it accepted.
func isTooEarly(err error) bool {
	var broken *ProtocolError
	if errors.Is(err, ErrClosed) {
		return !errors.As(err, &broken)
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}
