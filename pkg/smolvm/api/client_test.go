package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func multi(text string, rest io.Reader) io.Reader {
	return io.MultiReader(strings.NewReader(text), rest)
}

// clientOf returns a client of a server that answers with a function.
func clientOf(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := NewClient(server.URL, Options{Token: func() (string, error) { return "secret", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNewClientRefusesAddresses(t *testing.T) {
	for name, address := range map[string]string{
		"a relative socket":       "unix://run/smolvm.sock",
		"another scheme":          "ftp://localhost",
		"no scheme":               "/run/smolvm.sock",
		"a password":              "https://u:p@localhost",
		"a query":                 "http://localhost?a=b",
		"no host":                 "http://",
		"what is no address":      "http://[",
		"an address without unix": "localhost:8080",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewClient(address, Options{}); err == nil {
				t.Errorf("%s was accepted", address)
			} else if strings.Contains(err.Error(), "u:p") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

func TestErrorsOfAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		status   int
		body     string
		code     Code
		message  string
		notFound bool
	}{
		"an error has the server's code and sentence": {404, `{"error":"machine 'x' not found","code":"NOT_FOUND"}`, CodeNotFound, "machine 'x' not found", true},
		"a code that is unknown passes through":       {500, `{"error":"x","code":"CLONE_IDENTITY_REJUVENATION_FAILED"}`, "CLONE_IDENTITY_REJUVENATION_FAILED", "x", false},
		"an empty 404 is an unknown path":             {404, "", "", "smolvm answered 404 Not Found", false},
		"a rejection is text":                         {422, "Failed to deserialize", "", "smolvm answered 422 Unprocessable Entity: Failed to deserialize", false},
		"a proxy's page is text on one line":          {502, "<html>\r\n\x1b[31m bad\x00\xff gateway</html>", "", "smolvm answered 502 Bad Gateway: <html> [31m bad gateway</html>", false},
		"other JSON is text":                          {503, `["a"]`, "", `smolvm answered 503 Service Unavailable: ["a"]`, false},
		"a status of success is none here":            {204, "", "", "smolvm answered 204 No Content", false},
		"a redirect is an error":                      {302, "", "", "smolvm answered 302 Found", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/machines/x" {
					t.Errorf("the client went to %s", r.URL.Path)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := c.Get(t.Context(), "x")
			var told *Error
			if !errors.As(err, &told) {
				t.Fatalf("the error is %v", err)
			}
			if told.Status() != test.status || told.Code != test.code || told.Message != test.message {
				t.Errorf("the error is %d %q %q", told.Status(), told.Code, told.Message)
			}
			if IsNotFound(err) != test.notFound {
				t.Errorf("not found: %t", IsNotFound(err))
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		part := bytes.Repeat([]byte("["), 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	c := clientOf(t, endless)
	for name, ask := range map[string]func(context.Context) error{
		"of JSON":   func(ctx context.Context) error { _, err := c.List(ctx); return err },
		"of events": func(ctx context.Context) error { return c.Logs(ctx, "x", LogsOptions{}, io.Discard) },
		"of errors": func(ctx context.Context) error {
			refusing := clientOf(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway); endless(w, r) })
			_, err := refusing.List(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := ask(ctx); err == nil || ctx.Err() != nil || len(err.Error()) > 2000 {
				t.Errorf("the error is %.100v", err)
			}
		})
	}
}

func TestNamesCannotChangeThePath(t *testing.T) {
	var path string
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		_, _ = io.WriteString(w, "{}")
	})
	for name, want := range map[string]string{
		"a/b": "/api/v1/machines/a%2Fb", "a?b#c": "/api/v1/machines/a%3Fb%23c", "a b": "/api/v1/machines/a%20b",
		"": "", ".": "", "..": "",
	} {
		path = ""
		_, err := c.Get(t.Context(), name)
		if path != want || (err != nil) != (want == "") {
			t.Errorf("machine %q was asked for at %q: %v", name, path, err)
		}
	}
	for _, file := range []string{"relative", "/", "/../etc/passwd", "/a/./b", "/a//b", "/a\x00"} {
		path = ""
		if err := c.ReadFile(t.Context(), "x", file, io.Discard); err == nil || path != "" {
			t.Errorf("file %q was asked for at %q: %v", file, path, err)
		}
	}
}

func TestTokenIsSentAndStaysHere(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed with %q", r.Header.Get("Authorization"))
	}))
	defer thief.Close()
	sent := ""
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	})
	if _, err := c.Stop(t.Context(), "x"); err == nil || sent != "Bearer secret" {
		t.Errorf("%q was sent: %v", sent, err)
	}
	c.token = func() (string, error) { return "", errors.New("no file") }
	if _, err := c.Stop(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("the error is %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ok","version":"1"}`)
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	c, err := NewClient("unix://"+socket, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if health, err := c.Health(t.Context()); err != nil || health.Status != "ok" {
		t.Errorf("%+v: %v", health, err)
	}
	gone, _ := NewClient("unix:///nowhere/s", Options{})
	if _, err := gone.Health(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "calling GET /health of smolvm at unix:///nowhere/s: dial unix") {
		t.Errorf("the error is %v", err)
	}
}

func TestExecStream(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		stream string
		writer io.Writer
		code   int
		stdout string
		fails  string
	}{
		"output and exit code":                   {stream: "event: stdout\ndata: a\n\nevent: stderr\ndata: e\n\nevent: news\ndata: x\n\nevent: exit\ndata: {\"exitCode\":42}\n\n", code: 42, stdout: "a"},
		"a stream that ends early is an error":   {stream: "event: stdout\ndata: a\n\n", stdout: "a", fails: "the answer ended before the command"},
		"an error is the server's":               {stream: "event: error\ndata: {\"message\":\"no room\",\"code\":\"DISK_FULL\"}\n\n", fails: "no room"},
		"an error that is none is reported":      {stream: "event: error\ndata: oh\n\n", fails: "smolvm ended the stream with an error: oh"},
		"an exit without a code is none":         {stream: "event: exit\ndata: null\n\n", fails: "the answer ended before the command"},
		"an exit that is no JSON is an error":    {stream: "event: exit\ndata: x\n\n", fails: "invalid character"},
		"an error of the writer ends the stream": {stream: "event: stdout\ndata: a\n\nevent: exit\ndata: {\"exitCode\":0}\n\n", writer: writerOf(broken), fails: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				_, _ = io.WriteString(w, test.stream)
			})
			var stdout bytes.Buffer
			out := test.writer
			if out == nil {
				out = &stdout
			}
			code, err := c.ExecStream(t.Context(), "x", ExecRequest{Command: []string{"true"}}, out, io.Discard)
			if code != test.code || stdout.String() != test.stdout {
				t.Errorf("code %d, output %q", code, stdout.String())
			}
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func writerOf(err error) io.Writer { return failingWriter{err} }

func TestWatch(t *testing.T) {
	for name, test := range map[string]struct {
		media, body string
		silent      bool
		types       string
		fails       string
	}{
		"events come until the answer ends":      {media: WatchContentType, body: "{\"type\":\"snapshot\"}\n\n{\"type\":\"deleted\",\"name\":\"x\"}\n", types: "snapshot deleted", fails: "unexpected EOF"},
		"a server that cannot watch is reported": {media: "application/json", body: `{"machines":[]}`, fails: "this server cannot tell changes of machines"},
		"a line that is none ends the watch":     {media: WatchContentType, body: "{\n", fails: "decoding a line"},
		"a server that is silent is given up":    {media: WatchContentType, body: "{\"type\":\"snapshot\"}\n", silent: true, types: "snapshot", fails: "the server was silent"},
		"silence before the answer is no news":   {silent: true, fails: "the server was silent"},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
				if test.media != "" {
					w.Header().Set("Content-Type", test.media)
					_, _ = io.WriteString(w, test.body)
					_ = http.NewResponseController(w).Flush()
				}
				if test.silent {
					<-r.Context().Done()
				}
			})
			if test.silent {
				c.patience = 200 * time.Millisecond
			}
			var types []string
			err := c.Watch(t.Context(), func(e WatchEvent) error { types = append(types, string(e.Type)); return nil })
			if err == nil || !strings.Contains(err.Error(), test.fails) || strings.Join(types, " ") != test.types {
				t.Errorf("%v: %v", types, err)
			}
		})
	}
}
