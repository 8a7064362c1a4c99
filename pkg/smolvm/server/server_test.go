package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// stub has the functions of Machines that a test sets; the others are nil and panic.
type stub struct {
	Machines

	list   func(context.Context) ([]api.Machine, error)
	stop   func(context.Context, string) (api.Machine, error)
	exec   func(context.Context, api.ExecRequest, io.Writer, io.Writer) (int, error)
	logs   func(ctx context.Context, tail int, follow bool, out io.Writer) error
	read   func(path string, out io.Writer) error
	write  func(path string, in io.Reader) (int64, error)
	health func(context.Context) (api.Health, error)
	drain  func(context.Context) error
}

func (s *stub) List(ctx context.Context) ([]api.Machine, error) { return s.list(ctx) }

func (s *stub) Stop(ctx context.Context, name string) (api.Machine, error) { return s.stop(ctx, name) }

func (s *stub) Exec(ctx context.Context, _ string, r api.ExecRequest, stdout, stderr io.Writer) (int, error) {
	return s.exec(ctx, r, stdout, stderr)
}

func (s *stub) Logs(ctx context.Context, _ string, tail int, follow bool, out io.Writer) error {
	return s.logs(ctx, tail, follow, out)
}

func (s *stub) ReadFile(_ context.Context, _, path string, out io.Writer) error {
	return s.read(path, out)
}

func (s *stub) WriteFile(_ context.Context, _, path string, in io.Reader) (int64, error) {
	return s.write(path, in)
}

func (s *stub) Health(ctx context.Context) (api.Health, error) { return s.health(ctx) }

func (s *stub) Drain(ctx context.Context) error { return s.drain(ctx) }

// serve serves machines and returns the address and a client.
func serve(t *testing.T, machines Machines, change func(*limits)) (string, *api.Client) {
	t.Helper()
	bounds := usual
	if change != nil {
		change(&bounds)
	}
	handler := newServer(Options{Machines: machines, Log: slog.New(slog.DiscardHandler), CORSOrigins: []string{"http://localhost:3000"}}, bounds)
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	c, err := api.NewClient(listening.URL, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return listening.URL, c
}

// reply is an answer without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

// ask makes a request and returns the answer and its body.
func ask(t *testing.T, method, url, body string, header http.Header) (reply, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		request.Header[key] = values
	}
	if host := header.Get("Host"); host != "" {
		request.Host = host
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header}, string(text)
}

func TestRequestsThatTakeTooLong(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	machines := &stub{
		stop: func(ctx context.Context, name string) (api.Machine, error) {
			if name == "deaf" {
				<-release
			}
			<-ctx.Done()
			return api.Machine{}, ctx.Err()
		},
		read: func(_ string, out io.Writer) error {
			_, err := out.Write([]byte("begin"))
			<-release
			return err
		},
	}
	url, c := serve(t, machines, func(l *limits) { l.request = 100 * time.Millisecond })
	for _, name := range []string{"listening", "deaf"} {
		answer, body := ask(t, http.MethodPost, url+"/api/v1/machines/"+name+"/stop", "", nil)
		if answer.StatusCode != http.StatusRequestTimeout || body != "" || answer.Header.Get(traceHeader) == "" {
			t.Errorf("%s: %d %q", name, answer.StatusCode, body)
		}
	}
	var got bytes.Buffer
	if err := c.ReadFile(t.Context(), "x", "/f", &got); err == nil {
		t.Errorf("the part %q was taken for the whole", got.String())
	}
}

func TestTraceIDs(t *testing.T) {
	url, _ := serve(t, &stub{health: func(context.Context) (api.Health, error) { return api.Health{}, nil }}, nil)
	seen := map[string]bool{}
	for _, path := range []string{"/health", "/health", "/nowhere", "/drain", "/api/v1/machines/"} {
		answer, _ := ask(t, http.MethodGet, url+path, "", nil)
		id := answer.Header.Get(traceHeader)
		if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(id) || seen[id] {
			t.Errorf("the id %q of %s is malformed or not new", id, path)
		}
		seen[id] = true
	}
}

func TestExecIsBounded(t *testing.T) {
	machines := &stub{exec: func(ctx context.Context, _ api.ExecRequest, stdout, stderr io.Writer) (int, error) {
		for {
			for _, w := range []io.Writer{stdout, stderr} {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					<-ctx.Done()
					return 0, errors.New("the guest's side was cut off")
				}
			}
		}
	}}
	_, c := serve(t, machines, func(l *limits) { l.output = 10000 })
	_, err := c.Exec(t.Context(), "x", api.ExecRequest{Command: []string{"yes"}})
	if api.CodeOf(err) != api.CodeUnsupported || !strings.Contains(err.Error(), "use exec/stream") {
		t.Errorf("the error is %v", err)
	}
}

func TestExecReturnsBytes(t *testing.T) {
	machines := &stub{exec: func(_ context.Context, r api.ExecRequest, stdout, _ io.Writer) (int, error) {
		_, err := io.WriteString(stdout, r.Stdin)
		return 3, err
	}}
	url, c := serve(t, machines, nil)
	answer, body := ask(t, http.MethodPost, url+"/api/v1/machines/x/exec", `{"command":["cat"],"stdin":"<ü>"}`, http.Header{contentType: {typeJSON}})
	want := `{"exitCode":3,"stdout":"<ü>","stderr":"","stdoutB64":"PMO8Pg==","stderrB64":""}` + "\n"
	if answer.StatusCode != http.StatusOK || body != want {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	machines.exec = func(_ context.Context, _ api.ExecRequest, stdout, _ io.Writer) (int, error) {
		_, err := stdout.Write([]byte("a\xff"))
		return 0, err
	}
	got, err := c.Exec(t.Context(), "x", api.ExecRequest{Command: []string{"x"}})
	if err != nil || got.Stdout != "a\uFFFD" || string(got.StdoutB64) != "a\xff" {
		t.Errorf("%+v: %v", got, err)
	}
}

func TestExecStreamKeepsBytes(t *testing.T) {
	random := bytes.Repeat([]byte("ü\r\n\xff\xf0\x9f\x98\x80\n\n"), 10000)
	machines := &stub{exec: func(_ context.Context, _ api.ExecRequest, stdout, stderr io.Writer) (int, error) {
		for rest := random; len(rest) > 0; {
			part := rest[:min(len(rest), 777)]
			rest = rest[len(part):]
			if _, err := stdout.Write(part); err != nil {
				return 0, err
			}
		}
		_, err := stderr.Write([]byte("\xf0\x9f"))
		return 42, err
	}}
	url, c := serve(t, machines, nil)
	var stdout, stderr bytes.Buffer
	code, err := c.ExecStream(t.Context(), "x", api.ExecRequest{Command: []string{"x"}}, &stdout, &stderr)
	if err != nil || code != 42 || !bytes.Equal(stdout.Bytes(), random) || stderr.String() != "\xf0\x9f" {
		t.Errorf("code %d, %d bytes of %d, %q: %v", code, stdout.Len(), len(random), stderr.String(), err)
	}
	machines.exec = func(_ context.Context, _ api.ExecRequest, stdout, _ io.Writer) (int, error) {
		for _, b := range []byte("😀\n") {
			if _, err := stdout.Write([]byte{b}); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	_, body := ask(t, http.MethodPost, url+"/api/v1/machines/x/exec/stream", `{"command":["x"]}`, http.Header{contentType: {typeJSON}})
	if want := "event: stdout\ndata: 😀\n\nevent: stdout\ndata: \ndata: \n\nevent: exit\ndata: {\"exitCode\":0}\n\n"; body != want {
		t.Errorf("the stream is %q", body)
	}
}

func TestErrorsOfStreams(t *testing.T) {
	for name, test := range map[string]struct {
		begins bool
		status int
	}{
		"before the first output it is the answer": {false, http.StatusConflict},
		"after it there is an event":               {true, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			machines := &stub{exec: func(_ context.Context, _ api.ExecRequest, stdout, _ io.Writer) (int, error) {
				if test.begins {
					_, _ = io.WriteString(stdout, "a")
				}
				return 0, api.Errorf(api.CodePortInUse, "port 80 is taken")
			}}
			url, c := serve(t, machines, nil)
			_, err := c.ExecStream(t.Context(), "x", api.ExecRequest{Command: []string{"x"}}, io.Discard, io.Discard)
			if api.CodeOf(err) != api.CodePortInUse || !strings.Contains(err.Error(), "port 80 is taken") {
				t.Errorf("the error is %v", err)
			}
			answer, _ := ask(t, http.MethodPost, url+"/api/v1/machines/x/exec/stream", `{"command":["x"]}`, http.Header{contentType: {typeJSON}})
			if answer.StatusCode != test.status {
				t.Errorf("the status is %d", answer.StatusCode)
			}
		})
	}
}

func TestWebPagesAreKeptAway(t *testing.T) {
	machines := &stub{
		health: func(context.Context) (api.Health, error) { return api.Health{}, nil },
		drain:  func(context.Context) error { return nil },
	}
	url, _ := serve(t, machines, nil)
	for name, test := range map[string]struct {
		method, path string
		header       http.Header
		want         int
	}{
		"a program may drain":                         {http.MethodPost, "/drain", nil, 200},
		"localhost is this host":                      {http.MethodGet, "/health", http.Header{"Host": {"localhost:1234"}}, 200},
		"an address is this host":                     {http.MethodGet, "/health", http.Header{"Host": {"[::1]"}}, 200},
		"a name that was made to resolve here is not": {http.MethodGet, "/health", http.Header{"Host": {"evil.example:8080"}}, 403},
		"a page of another origin may not drain":      {http.MethodPost, "/drain", http.Header{"Origin": {"http://evil.example"}}, 403},
		"a page without an origin may not either":     {http.MethodPost, "/drain", http.Header{"Origin": {"null"}}, 403},
		"a page that was asked for may":               {http.MethodPost, "/drain", http.Header{"Origin": {"http://localhost:3000"}}, 200},
		"its browser may ask":                         {http.MethodOptions, "/drain", http.Header{"Origin": {"http://localhost:3000"}}, 200},
		"another's may not":                           {http.MethodOptions, "/drain", http.Header{"Origin": {"http://evil.example"}}, 405},
	} {
		t.Run(name, func(t *testing.T) {
			answer, body := ask(t, test.method, url+test.path, "", test.header)
			if answer.StatusCode != test.want {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			allowed := answer.Header.Get("Access-Control-Allow-Origin")
			if (allowed != "") != (test.header.Get("Origin") == "http://localhost:3000") {
				t.Errorf("origin %q is allowed", allowed)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, test := range map[string]struct {
		health func(context.Context) (api.Health, error)
		want   int
	}{
		"well":   {func(context.Context) (api.Health, error) { return api.Health{}, nil }, http.StatusOK},
		"broken": {func(context.Context) (api.Health, error) { return api.Health{}, errors.New("no disk") }, http.StatusServiceUnavailable},
		"stuck":  {func(context.Context) (api.Health, error) { <-release; return api.Health{}, nil }, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			url, c := serve(t, &stub{health: test.health}, func(l *limits) { l.probe = 50 * time.Millisecond })
			answer, body := ask(t, http.MethodGet, url+"/readyz", "", nil)
			if answer.StatusCode != test.want || !json.Valid([]byte(body)) {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			if err := c.Ready(t.Context()); (err == nil) != (test.want == http.StatusOK) {
				t.Errorf("the client says %v", err)
			}
		})
	}
}
