package qmp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// The servers of these tests are scripted: they reply what QEMU 7.2 was seen to reply. The real one is tested in
// integration/suites/live.

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "scripted"}, "capabilities": ["oob"]}}`

// request is a command as it came over the socket.
type request struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        json.RawMessage `json:"id"`
}

// peer is the server's side of a connection.
type peer struct {
	conn     net.Conn
	requests *bufio.Scanner
}

// next returns the next command, or false at the end of the connection.
func (p *peer) next() (request, bool) {
	if !p.requests.Scan() {
		return request{}, false
	}
	var r request
	if err := json.Unmarshal(p.requests.Bytes(), &r); err != nil {
		panic(fmt.Sprintf("the client sent %q: %v", p.requests.Text(), err))
	}
	return r, true
}

// say sends a line. It ignores errors, because many scripts expect the client to disconnect.
func (p *peer) say(format string, args ...any) { fmt.Fprintf(p.conn, format+"\r\n", args...) }

func (p *peer) reply(r request, result string) { p.say(`{"return": %s, "id": %s}`, result, r.ID) }

func (p *peer) refuse(r request, description string) {
	p.say(`{"id": %s, "error": {"class": "GenericError", "desc": %q}}`, r.ID, description)
}

func (p *peer) event(name, data string) {
	p.say(`{"timestamp": {"seconds": 1700000000, "microseconds": 250000}, "event": %q, "data": %s}`, name, data)
}

// greet sends the greeting and grants the capabilities.
func (p *peer) greet() {
	p.say(greeting)
	if r, ok := p.next(); ok {
		p.reply(r, "{}")
	}
}

// listen serves one script for each connection, in that order, at the socket that it returns.
func listen(t *testing.T, scripts ...func(*peer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qmp")
	serve(t, path, scripts...)
	return path
}

func serve(t *testing.T, path string, scripts ...func(*peer)) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for _, script := range scripts {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			script(&peer{conn: conn, requests: bufio.NewScanner(conn)})
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		await(t, "the end of the script", func() bool {
			select {
			case <-stopped:
				return true
			default:
				return false
			}
		})
	})
}

// connect returns a client of a server that greets and then follows the script.
func connect(t *testing.T, script func(*peer), options ...qmp.Option) *qmp.Client {
	t.Helper()
	path := listen(t, func(p *peer) {
		p.greet()
		script(p)
	})
	c, err := qmp.Dial(t.Context(), path, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		noGoroutineLeft(t)
	})
	return c
}

// each answers every request by a function until the client disconnects.
func each(answer func(p *peer, r request)) func(*peer) {
	return func(p *peer) {
		for r, ok := p.next(); ok; r, ok = p.next() {
			answer(p, r)
		}
	}
}

// await polls until a condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: it does not come", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// noGoroutineLeft waits until no goroutine runs a method of package qmp.
func noGoroutineLeft(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	var left string
	await(t, "the end of the client's goroutines", func() bool {
		left = string(stacks[:runtime.Stack(stacks, true)])
		return !strings.Contains(left, "pkg/vm/qmp.(*")
	})
}

// discard is a connection that discards what is written.
type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }
