package agentwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// echo is a guest whose commands do what they are called: they are the other end of the wire, not a machine.
type echo struct {
	mu       sync.Mutex
	files    map[string]string
	down     int
	poweroff chan struct{}
}

func newEcho() *echo { return &echo{files: map[string]string{}, poweroff: make(chan struct{})} }

func (e *echo) Status() Status {
	code := 3
	return Status{Workload: WorkloadEnded, ExitCode: &code, Uptime: time.Minute, Grown: []string{"storage"}}
}

func (e *echo) Exec(ctx context.Context, x Exec, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if stdin == nil {
		stdin = strings.NewReader("")
		fmt.Fprint(stderr, "no input")
	}
	switch strings.Join(x.Command, " ") {
	case "cat":
		_, err := io.Copy(stdout, stdin)
		return 0, err
	case "yes":
		for {
			if _, err := fmt.Fprintln(stdout, strings.Repeat("y", 1000)); err != nil {
				return 0, err
			}
		}
	case "wait":
		<-ctx.Done()
		return 0, context.Cause(ctx)
	case "input":
		return 7, nil
	}
	return ExitNotFound, nil
}

func (e *echo) ReadFile(_ context.Context, path string, out io.Writer) (int64, error) {
	e.mu.Lock()
	text, ok := e.files[path]
	e.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("looking: %w", Errorf(CodeNotFound, "there is no\n%s", path))
	}
	n, err := io.WriteString(out, text)
	return int64(n), err
}

func (e *echo) WriteFile(_ context.Context, path string, mode fs.FileMode, in io.Reader) (int64, error) {
	if path == "/" {
		return 0, Errorf(CodeIsDirectory, "it is a directory")
	}
	text, err := io.ReadAll(in)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files[path] = string(text)
	e.files[path+" mode"] = mode.String()
	return int64(len(text)), err
}

func (e *echo) Shutdown() error {
	e.down++
	return nil
}

func (e *echo) PowerOff() { close(e.poweroff) }

func spawn(f func()) { go f() }

// connected returns a client of a guest, and ends both with the test.
func connected(t *testing.T, guest Guest) *Client {
	t.Helper()
	host, port := net.Pipe()
	served := make(chan struct{})
	go func() { _ = Serve(port, guest, spawn); close(served) }()
	c, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); port.Close(); <-served })
	return c
}

func TestRequestsAreAnswered(t *testing.T) {
	guest := newEcho()
	c := connected(t, guest)
	s, err := c.Ping(t.Context())
	if err != nil || s.Workload != WorkloadEnded || *s.ExitCode != 3 || s.Uptime != time.Minute || s.Grown[0] != "storage" {
		t.Errorf("the status is %+v, %v", s, err)
	}
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	var got, errs bytes.Buffer
	if code, err := c.Exec(t.Context(), Exec{Command: []string{"cat"}}, bytes.NewReader(sent), &got, nil); code != 0 || err != nil || !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("cat ends with %d, %v and %d bytes", code, err, got.Len())
	}
	if code, err := c.Exec(t.Context(), Exec{Command: []string{"input"}}, nil, nil, &errs); code != 7 || err != nil || errs.String() != "no input" {
		t.Errorf("a command without input ends with %d, %v, and says %s", code, err, &errs)
	}
	if n, err := c.WriteFile(t.Context(), "/a", 0o4755, bytes.NewReader(sent)); n != int64(len(sent)) || err != nil || guest.files["/a mode"] != "-rwxr-xr-x" {
		t.Errorf("%d bytes are written: %v", n, err)
	}
	got.Reset()
	if n, err := c.ReadFile(t.Context(), "/a", &got); n != int64(len(sent)) || err != nil || !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes are read: %v", n, err)
	}
	_, err = c.ReadFile(t.Context(), "/b", io.Discard)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `reading "/b" in the guest: looking: there is no /b`) {
		t.Errorf("a file that is not there: %v", err)
	}
	endless, _ := io.Pipe()
	if _, err := c.WriteFile(t.Context(), "/", 0, endless); !errors.Is(err, ErrIsDirectory) {
		t.Errorf("a directory: %v", err)
	}
	if err := c.Shutdown(t.Context()); err != nil || guest.down != 1 {
		t.Errorf("shut down %d times: %v", guest.down, err)
	}
	<-guest.poweroff
}

// TestSlowReaderStopsOnlyItsOwnRequest: an endless command has no more than a window on its way while others run.
func TestSlowReaderStopsOnlyItsOwnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connected(t, newEcho())
		ctx, cancel := context.WithCancelCause(t.Context())
		reader, writer := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := c.Exec(ctx, Exec{Command: []string{"yes"}}, nil, writer, nil)
			done <- err
		}()
		if _, err := io.CopyN(io.Discard, reader, 10*window); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.mu.Lock()
		for _, r := range c.requests {
			if held := len(r.in[stdout].data); held > window {
				t.Errorf("%d bytes are held", held)
			}
		}
		c.mu.Unlock()
		for range 100 {
			if _, err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cancel(errors.New("called off"))
		reader.Close()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "called off") {
			t.Errorf("it ends with %v", err)
		}
		synctest.Wait()
		if c.mu.Lock(); len(c.requests) != 0 {
			t.Errorf("%d requests are left", len(c.requests))
		}
		c.mu.Unlock()
	})
}

func TestWriterThatFailsEndsItsCommand(t *testing.T) {
	c := connected(t, newEcho())
	reader, writer := io.Pipe()
	reader.CloseWithError(errors.New("the browser has gone"))
	if _, err := c.Exec(t.Context(), Exec{Command: []string{"yes"}}, nil, writer, nil); err == nil || !strings.Contains(err.Error(), "the browser has gone") {
		t.Errorf("it ends with %v", err)
	}
	broken := io.MultiReader(strings.NewReader("x"), readerOf(errors.New("the upload has broken off")))
	if _, err := c.WriteFile(t.Context(), "/x", 0, broken); err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("writing ends with %v", err)
	}
	if _, err := c.Ping(t.Context()); err != nil {
		t.Errorf("the session is over: %v", err)
	}
}

func readerOf(err error) io.Reader {
	reader, writer := io.Pipe()
	writer.CloseWithError(err)
	return reader
}

func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connected(t, newEcho())
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range MaxRequests {
			all.Go(func() { _, _ = c.Exec(ctx, Exec{Command: []string{"wait"}}, nil, nil, nil) })
		}
		synctest.Wait()
		if _, err := c.Ping(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("one more: %v", err)
		}
		cancel()
		all.Wait()
		synctest.Wait()
		if _, err := c.Ping(t.Context()); err != nil {
			t.Errorf("after the others: %v", err)
		}
	})
}

// TestHostTakesOverFromOneThatWasKilled: the second host comes while the first one's frame is half written and the guest
// is in the middle of an answer.
func TestHostTakesOverFromOneThatWasKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := newPort()
		defer port.close()
		served := make(chan struct{})
		go func() { _ = Serve(port, newEcho(), spawn); close(served) }()
		for round := range 5 {
			first, err := Connect(t.Context(), port.plug())
			if err != nil {
				t.Fatal(err)
			}
			reader, writer := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				_, err := first.Exec(t.Context(), Exec{Command: []string{"yes"}}, nil, writer, nil)
				ended <- err
			}()
			if _, err := io.CopyN(io.Discard, reader, window); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			port.left(mustEncode(t, frame{ID: 9, Kind: kindExec, Path: "half"})[:4+round*5])
			first.Close()
			reader.Close()
			if err := <-ended; !errors.Is(err, ErrEnded) {
				t.Errorf("the command of the first host ends with %v", err)
			}
			second, err := Connect(t.Context(), port.plug())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := second.Ping(t.Context()); err != nil {
				t.Errorf("the second host: %v", err)
			}
			second.Close()
		}
		port.close()
		<-served
	})
}

// port is a virtio-serial port: it stays when hosts go, and does not say so. What the guest writes goes to the host that is
// connected by then, and is lost without one.
type port struct {
	in       *io.PipeReader
	fromHost *io.PipeWriter

	mu sync.Mutex
	to *io.PipeWriter
}

func newPort() *port {
	p := &port{}
	p.in, p.fromHost = io.Pipe()
	return p
}

func (p *port) Read(b []byte) (int, error) { return p.in.Read(b) }

func (p *port) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		piece := rest[:min(len(rest), 1000)]
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		_, _ = to.Write(piece)
		rest = rest[len(piece):]
	}
	return len(b), nil
}

func (p *port) left(b []byte) { _, _ = p.fromHost.Write(b) }
func (p *port) close()        { p.fromHost.Close() }

// plug connects a host.
func (p *port) plug() io.ReadWriteCloser {
	reader, writer := io.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = writer
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{reader, p.fromHost, reader}
}
