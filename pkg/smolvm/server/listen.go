package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// modeOfSocket lets only root, or the server's user, open the socket.
const modeOfSocket = 0o600

const (
	// headerTime bounds how long a client takes to send a header, and idleTime how long it keeps a connection for another
	// request.
	headerTime = 10 * time.Second
	idleTime   = 5 * time.Minute
	// graceTime bounds how long requests that are under way may take when the server stops.
	graceTime = 10 * time.Second
	// lockTime bounds how long another server may take to open its socket in the same directory.
	lockTime  = 5 * time.Second
	maxHeader = 64 << 10
)

// Listen opens where a server listens: an address and port, such as 127.0.0.1:8080; unix:///path; or a path. TCP is for
// the loopback only, unless remote allows others: the API has no authentication. The directories of a path are made. A
// socket that is there is replaced if nothing answers on it.
func Listen(ctx context.Context, address string, remote bool) (net.Listener, error) {
	if tcp, err := netip.ParseAddrPort(address); err == nil {
		if !tcp.Addr().Unmap().IsLoopback() && !remote {
			return nil, fmt.Errorf("listening on %s: it is not on the loopback, and the API has no authentication", address)
		}
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		}
		return listener, nil
	}
	path, isUnix := strings.CutPrefix(address, "unix://")
	if path == "" || !isUnix && !filepath.IsAbs(path) && strings.Contains(path, ":") {
		return nil, fmt.Errorf("listening on %q: it is neither ADDRESS:PORT, unix:///path nor a path", address)
	}
	// A path that starts with @ would be a socket without a file, which all may open.
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	listener, err := listenUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return listener, nil
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	// Of two servers that start at once, the second must not remove the first one's socket between its check and its own.
	unlock, err := lockDirectory(ctx, directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// The mode of the file is that of the socket before it is bound, so there is no moment at which others can open it.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), modeOfSocket) })
		return errors.Join(err, failed)
	}}
	return config.Listen(ctx, "unix", path)
}

// lockDirectory locks a directory against other servers. Others may be able to open it, so the wait is bounded.
func lockDirectory(ctx context.Context, directory string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	opened, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(opened.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing it unlocks.
			return func() { _ = opened.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", directory, err), opened.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("locking %s: another program holds the lock: %w", directory, ctx.Err()), opened.Close())
		case <-time.After(lockTime / 100):
		}
	}
}

// removeStale removes a socket that a server left which did not end well.
func removeStale(ctx context.Context, path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket")
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another server answers there"), connection.Close())
	case !errors.Is(err, syscall.ECONNREFUSED):
		// The other may be too busy to answer, or not ours to ask.
		return fmt.Errorf("asking whether another server answers there: %w", err)
	}
	return os.Remove(path)
}

// Serve serves a handler until the context ends. Then streams of logs and changes end at once, other requests have ten
// seconds, and the listener is closed, which removes its socket. The error is nil after that.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	requests, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), stopKey{}, ctx))
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer stop()
	if err := server.Shutdown(grace); err != nil {
		cancel()
		// The rest is cut off.
		return errors.Join(ignoring(err, context.DeadlineExceeded), server.Close())
	}
	return nil
}

// ignoring returns an error unless it is the one to be ignored.
func ignoring(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}
