package qmp

import (
	"context"
	"errors"
	"time"
)

// Keep holds a connection to the monitor at path until ctx ends, which its caller ends with QEMU. It calls session with
// every new connection; the session's context ends with that connection. If the connection ends first, Keep drops the
// session's error, dials again and calls session again. If the session ends first, Keep closes the connection and
// returns what the session returned. If ctx ends, Keep returns its error.
//
// No state is carried over from one connection to the next: commands are not repeated, because it is unknown whether
// they were carried out, and events in between are lost. So a session should first subscribe, then query the state that
// it needs, and then change what still has to be changed.
func Keep(ctx context.Context, path string, session func(context.Context, *Client) error, options ...Option) error {
	for {
		c, err := Dial(ctx, path, options...)
		if err != nil {
			return err
		}
		lost, err := hold(ctx, c, session)
		if !lost || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		c.log.Info("QMP connection lost, connecting again", "cause", c.Err())
		select {
		case <-time.After(maxPause): // a monitor that greets and disconnects must not keep a core busy
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hold runs a session on a connection and reports whether the connection ended before the session.
func hold(ctx context.Context, c *Client, session func(context.Context, *Client) error) (lost bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-c.Done()
		cancel(c.Err())
	}()
	err = session(ctx, c)
	lost = c.Err() != nil
	return lost, errors.Join(err, c.Close())
}
