package agentwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hostileGuest answers a host's hello, reads a request, and sends what answer returns for the request's id.
func hostileGuest(t *testing.T, answer func(id uint64) []byte) *Client {
	t.Helper()
	host, port := net.Pipe()
	go func() {
		from := newReader(port)
		hello := await(from, kindHello)
		_, _ = port.Write(mustOpen(t, frame{Kind: kindWelcome, Session: hello.Session, Version: Version}))
		request := await(from, "")
		go io.Copy(io.Discard, from.in) //nolint:errcheck // it ends with the connection
		_, _ = port.Write(answer(request.ID))
	}()
	c, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); port.Close() })
	return c
}

// await reads up to a frame of a kind, or any.
func await(from *reader, k kind) frame {
	for {
		text, err := from.next()
		if err != nil && !errors.Is(err, errMark) {
			return frame{}
		}
		if f, err := decode(text); err == nil && (f.Kind == k || k == "") {
			return f
		}
	}
}

func TestHostileGuestEndsOnlyItsSession(t *testing.T) {
	const id = 1
	data := func(s stream, n int) []byte {
		return mustEncode(t, frame{ID: id, Kind: kindData, Stream: s, Data: make([]byte, n)})
	}
	for name, test := range map[string]struct {
		answer []byte
		want   string
	}{
		"garbage":                         {[]byte("HTTP/1.1 400 Bad Request"), "a frame of 1213486160 bytes"},
		"a frame that is no JSON":         {[]byte("\x00\x00\x00\x02{x"), "a frame is not what it should be"},
		"the end of the connection":       {nil, "EOF"},
		"another session":                 {mustOpen(t, frame{Kind: kindWelcome, Session: "x"}), "begun another session"},
		"another welcome":                 {mustEncode(t, frame{Kind: kindWelcome, Session: "x"}), "is not about a request"},
		"an answer to no request":         {mustEncode(t, frame{ID: 77, Kind: kindEnd}), "there is no request 77"},
		"two answers":                     {bytes.Repeat(mustEncode(t, frame{ID: id, Kind: kindEnd}), 2), "there is no request 1"},
		"a request":                       {mustEncode(t, frame{ID: id, Kind: kindPing}), "is no part of request 1"},
		"a kind with a terminal's colour": {mustEncode(t, frame{ID: id, Kind: "\x1b[31m"}), `"[31m" is no part`},
		"a stream that it has not":        {data(content, 1), "is no part of request 1"},
		"data in a large chunk":           {data(stdout, MaxChunk+1), "bytes of data in a frame"},
		"data without credit":             {bytes.Repeat(data(stdout, MaxChunk), 3), "sends more than it may"},
		"data after the end":              {append(mustEncode(t, frame{ID: id, Kind: kindData, Stream: stdout, Last: true}), data(stdout, 0)...), "sends after the end"},
		"credit that it has not":          {mustEncode(t, frame{ID: id, Kind: kindCredit, Credit: 1}), "is no part of request 1"},
		"giving up":                       {mustEncode(t, frame{Kind: kindFail, Error: Errorf(CodeFailed, "out of\x1b memory")}), "given up: out of  memory"},
	} {
		t.Run(name, func(t *testing.T) {
			blocked, writer := io.Pipe() // so that credit is used up
			defer blocked.Close()
			c := hostileGuest(t, func(uint64) []byte { return test.answer })
			if test.answer == nil {
				time.AfterFunc(10*time.Millisecond, func() { _ = c.connection.(net.Conn).SetDeadline(time.Unix(1, 0)) })
				test.want = "timeout"
			}
			go func() { <-c.done; blocked.Close() }()
			_, err := c.Exec(t.Context(), Exec{Command: []string{"x"}}, nil, writer, nil)
			if name != "two answers" && err == nil {
				t.Error("the request has no error")
			}
			<-c.done
			if err := c.Err(); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the session ends with %v, want %s", err, test.want)
			}
			if _, err := c.Ping(t.Context()); !errors.Is(err, ErrEnded) {
				t.Errorf("a request after that: %v", err)
			}
		})
	}
}

func TestHostileAnswersAreErrors(t *testing.T) {
	end := func(f frame) func(uint64) []byte {
		return func(id uint64) []byte { f.ID, f.Kind = id, kindEnd; return mustEncode(t, f) }
	}
	code := 256
	for name, test := range map[string]struct {
		answer func(uint64) []byte
		call   func(*Client) error
	}{
		"an exit code that there is not": {end(frame{ExitCode: 1 << 20}), func(c *Client) error {
			_, err := c.Exec(t.Context(), Exec{Command: []string{"x"}}, nil, nil, nil)
			return err
		}},
		"no status":                      {end(frame{}), ping},
		"an unknown state":               {end(frame{Status: &Status{Workload: "flying"}}), ping},
		"a workload's impossible code":   {end(frame{Status: &Status{Workload: WorkloadEnded, ExitCode: &code}}), ping},
		"more disks than there can be":   {end(frame{Status: &Status{Workload: WorkloadNone, Grown: make([]string, 100)}}), ping},
		"a file of another size":         {end(frame{Size: 5}), func(c *Client) error { _, err := c.ReadFile(t.Context(), "/x", io.Discard); return err }},
		"a written file of another size": {end(frame{Size: 5}), func(c *Client) error { _, err := c.WriteFile(t.Context(), "/x", 0, strings.NewReader("x")); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.call(hostileGuest(t, test.answer)); !errors.Is(err, errProtocol) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	unknown := hostileGuest(t, end(frame{Error: Errorf("mine", "\x1b[31m%s", strings.Repeat("x", 5000))}))
	var answer *Error
	if err := ping(unknown); !errors.As(err, &answer) || answer.Code != CodeFailed || len(answer.Message) > maxText || strings.Contains(answer.Message, "\x1b") {
		t.Errorf("an unknown error becomes %v", err)
	}
}

func ping(c *Client) error {
	_, err := c.Ping(context.Background())
	return err
}

// TestNoSessionWithWhatIsNoAgent: Connect ends and closes the connection, whatever is at the other end.
func TestNoSessionWithWhatIsNoAgent(t *testing.T) {
	for name, test := range map[string]struct {
		guest func(port net.Conn)
		want  string
	}{
		"silence":          {func(port net.Conn) { _, _ = io.Copy(io.Discard, port) }, "deadline exceeded"},
		"the end":          {func(port net.Conn) { port.Close() }, "has ended: "},
		"endless garbage":  {func(port net.Conn) { endless(port, []byte("garbage")) }, "no session begins within"},
		"endless marks":    {func(port net.Conn) { endless(port, bytes.Repeat([]byte{markByte}, 1000)) }, "deadline exceeded"},
		"endless sessions": {func(port net.Conn) { endless(port, mustOpen(t, frame{Kind: kindWelcome, Session: "x"})) }, "begins 64 sessions"},
		"another version": {func(port net.Conn) {
			hello := await(newReader(port), kindHello)
			_, _ = port.Write(mustOpen(t, frame{Kind: kindWelcome, Session: hello.Session, Version: 2}))
		}, "of version 2"},
		"a refusal": {func(port net.Conn) {
			hello := await(newReader(port), kindHello)
			_, _ = port.Write(mustOpen(t, frame{Kind: kindFail, Session: hello.Session, Error: Errorf(CodeInvalid, "not you")}))
		}, "given up: not you"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			if strings.Contains(test.want, "deadline") {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			host, port := net.Pipe()
			go test.guest(port)
			_, err := Connect(ctx, host)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			if _, err := host.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection is open: %v", err)
			}
			port.Close()
		})
	}
}

// endless writes for as long as it can, and reads what comes.
func endless(port net.Conn, text []byte) {
	go io.Copy(io.Discard, port) //nolint:errcheck // it ends with the connection
	for {
		if _, err := port.Write(text); err != nil {
			return
		}
	}
}

// TestGuestOutlivesHostsThatDoNotFollowTheProtocol: it says why it ends a session, and serves the next host.
func TestGuestOutlivesHostsThatDoNotFollowTheProtocol(t *testing.T) {
	request := func(f frame) []byte { return mustEncode(t, f) }
	exec := request(frame{ID: 1, Kind: kindExec, Exec: &Exec{Command: []string{"wait"}}, Input: true})
	for name, test := range map[string]struct {
		sent []byte
		want string
	}{
		"no JSON":            {[]byte("\x00\x00\x00\x02{x"), "a frame is not what it should be"},
		"a large frame":      {[]byte("\x7f\x00\x00\x02{x"), "and at most 1048576 are allowed"},
		"no id":              {request(frame{Kind: kindPing}), "request 0 is there already"},
		"an id twice":        {bytes.Repeat(exec, 2), "request 1 is there already"},
		"another hello":      {request(frame{Kind: kindHello}), `a frame "hello"`},
		"an answer":          {append(exec, request(frame{ID: 1, Kind: kindEnd})...), `a frame "end"`},
		"much input":         {append(exec, bytes.Repeat(request(frame{ID: 1, Kind: kindData, Data: make([]byte, MaxChunk)}), 3)...), "sends more than it may"},
		"much credit":        {append(exec, request(frame{ID: 1, Kind: kindCredit, Stream: stdout, Credit: 1})...), "allows more than a window"},
		"credit for nothing": {append(exec, request(frame{ID: 1, Kind: kindCredit, Stream: content, Credit: 1})...), "is no part of request 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, port := net.Pipe()
				served := make(chan struct{})
				go func() { _ = Serve(port, newEcho(), spawn); close(served) }()
				from := newReader(host)
				go host.Write(append(mustOpen(t, frame{Kind: kindHello, Session: "x", Version: Version}), test.sent...)) //nolint:errcheck // what is read tells
				failed := await(from, kindFail)
				if failed.Error == nil || !strings.Contains(failed.Error.Message, test.want) {
					t.Errorf("it says %+v, want %s", failed.Error, test.want)
				}
				synctest.Wait()
				c, err := Connect(t.Context(), host)
				if err != nil {
					t.Fatal(err)
				}
				if err := ping(c); err != nil {
					t.Error(err)
				}
				c.Close()
				port.Close()
				<-served
			})
		})
	}
}

// FuzzSession sends bytes to both sides after a session has begun. They must end it, and nothing else.
func FuzzSession(f *testing.F) {
	f.Add(mustEncode(f, frame{ID: 1, Kind: kindEnd}))
	f.Add(mustEncode(f, frame{ID: 1, Kind: kindExec, Exec: &Exec{Command: []string{"cat"}}, Input: true}))
	f.Add(mustOpen(f, frame{Kind: kindHello, Session: "y", Version: Version}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if bytes.Contains(sent, []byte("yes")) || bytes.Contains(sent, []byte("shutdown")) {
			return // endless, and once only
		}
		host, port := net.Pipe()
		served := make(chan struct{})
		go func() { _ = Serve(port, newEcho(), spawn); close(served) }()
		go io.Copy(io.Discard, host) //nolint:errcheck // it ends with the connection
		_, _ = host.Write(append(mustOpen(t, frame{Kind: kindHello, Session: "x", Version: Version}), sent...))
		host.Close()
		<-served

		c := &Client{connection: port, out: make(chan []byte, queue), done: make(chan struct{}), requests: map[uint64]*request{}}
		r := &request{in: map[stream]*inbox{stdout: newInbox(func(int) {})}, out: newOutbox(nil), answer: make(chan frame, 1), given: make(chan struct{})}
		if err := c.register(r); err != nil {
			t.Fatal(err)
		}
		if err := c.read(newReader(bytes.NewReader(sent))); err == nil {
			t.Error("reading ends without an error")
		}
		if held := len(r.in[stdout].data); held > window {
			t.Errorf("%d bytes are held", held)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	text, err := json.Marshal(Config{Name: "x", Network: &Network{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"network":{"address":"100.96.0.2/30","gateway":"100.96.0.1","dns":"100.96.0.1","mtu":1500},"grace":5}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err == nil && (c.Grace <= 0 || c.Network != nil && !c.Network.Address.IsValid()) {
			t.Errorf("%+v is accepted", c)
		}
	})
}
