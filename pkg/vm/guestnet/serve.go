package guestnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Serve answers the guest until the context ends, and then returns nil. The guest can configure its network only while
// it is served; it keeps what it has configured. Serve may be called again after it has returned.
func (n *Network) Serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.receive(ctx, n.sockets.tap, n.server.fromGuest) })
	if n.sockets.uplink != nil {
		group.Go(func() error { return n.receive(ctx, n.sockets.uplink, n.server.fromNetwork) })
	}
	group.Go(func() error { return n.advertise(ctx) })
	err := group.Wait()
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// receive answers the frames of a socket until the context ends.
func (n *Network) receive(ctx context.Context, socket *os.File, answer func([]byte) answers) error {
	if err := socket.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("reading from %s: %w", socket.Name(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Now()) })
	defer stop()
	frame := make([]byte, 1<<16)
	for {
		length, err := socket.Read(frame)
		switch {
		case err == nil:
			n.send(answer(frame[:length]))
		case errors.Is(err, unix.ENETDOWN):
			// This error is reported once when the interface goes down. The interface comes up again, or the runner
			// stops.
		default:
			return fmt.Errorf("reading from %s: %w", socket.Name(), err)
		}
	}
}

// advertise announces the guest's routers at intervals, so that the guest continues to use them.
func (n *Network) advertise(ctx context.Context) error {
	ticker := time.NewTicker(advertisementInterval)
	defer ticker.Stop()
	for {
		n.send(answers{toGuest: n.server.advertisements()})
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// send sends answers. If one is lost, the guest asks again.
func (n *Network) send(a answers) {
	for _, p := range a.toGuest {
		n.sendBy(n.sockets.tap, p)
	}
	for _, p := range a.toNetwork {
		n.sendBy(n.sockets.uplink, p)
	}
}

func (n *Network) sendBy(socket *os.File, p packet) {
	log := n.log.WithValues("interface", socket.Name(), "source", p.source.String(), "target", p.target.String())
	if _, err := socket.Write(p.frame()); err != nil {
		log.V(1).Info("could not answer", "error", err.Error())
		return
	}
	log.V(1).Info("answered")
}
