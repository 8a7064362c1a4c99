// Package netns runs functions in network namespaces of other processes.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace in which functions can run.
type Namespace interface {
	// Do calls f in the namespace: sockets that f creates and interface names that it uses are those of the namespace.
	Do(f func() error) error
}

// Do calls f on a thread that join has moved into a network namespace, and moves the thread back. Goroutines that f
// starts are not in the namespace; sockets that it creates remain there.
func Do(join, f func() error) (err error) {
	runtime.LockOSThread()
	origin, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the namespace of the thread: %w", err)
	}
	defer func() {
		back := unix.Setns(int(origin.Fd()), unix.CLONE_NEWNET)
		err = errors.Join(err, back, origin.Close())
		// A thread that is stuck in the namespace stays locked, so the runtime ends it with the goroutine.
		if back == nil {
			runtime.UnlockOSThread()
		}
	}()
	if err := join(); err != nil {
		return err
	}
	return f()
}

// Dial connects from within a namespace. The address has an IP address, not a name.
func Dial(ctx context.Context, n Namespace, network, address string) (connection net.Conn, err error) {
	err = n.Do(func() (err error) {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// Listen listens within a namespace for connections of a stream network ("tcp", "tcp4", "tcp6").
func Listen(ctx context.Context, n Namespace, network, address string) (listener net.Listener, err error) {
	err = n.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return listener, err
}
