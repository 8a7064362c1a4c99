package smolvmruntime

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// TestHostileRequests sends bytes that no client of Go's sends. Nothing of it reaches smolvm, and the node answers others.
func TestHostileRequests(t *testing.T) {
	n := serveNode(t)
	token := "Authorization: Bearer " + secret + "\r\n"
	smuggled := "POST /api/v1/machines/m/exec HTTP/1.1\r\nHost: x\r\n" + token + "Content-Type: application/json\r\nContent-Length: 22\r\n\r\n" + `{"command":["smuggle"]}`
	for sentence, test := range map[string]struct {
		request string
		status  int
	}{
		"a tunnel":                     {"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n" + token + "\r\n", 404},
		"a tunnel to a path":           {"CONNECT /api/v1/machines HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 405},
		"another host's address":       {"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 404},
		"a path with dots":             {"POST /api/v1/machines/../../../drain HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 404},
		"a path with escaped dots":     {"POST /api/v1/machines/%2e%2e/%2e%2e/%2e%2e/drain HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 404},
		"a path with an escaped slash": {"POST /api/v1/machines/m%2f..%2f..%2fdrain HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 400},
		"double slashes":               {"GET //api//v1//machines HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 404},
		"a backslash":                  {"GET /api/v1/machines\\..\\drain HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 404},
		"the server as a whole":        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n" + token + "\r\n", 200},
		"a header without an end":      {"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", 431},
		"a line break in a header":     {"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400},
		"two tokens":                   {"GET /api/v1/machines HTTP/1.1\r\nHost: x\r\n" + token + token + "\r\n", 401},
		"two lengths":                  {"POST /api/v1/machines HTTP/1.1\r\nHost: x\r\n" + token + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		"an unknown encoding":          {"POST /api/v1/machines HTTP/1.1\r\nHost: x\r\n" + token + "Transfer-Encoding: chunked, x\r\n\r\n", 501},
		"a request behind a length":    {"GET /api/v1/machines HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + token + "Content-Length: " + "200" + "\r\n\r\n" + smuggled, 200},
		"a request behind length and encoding": {"POST /api/v1/machines/m/stop HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + token +
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 404},
		"an upgrade":         {"GET /api/v1/machines HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + token + "\r\n", 200},
		"half of a body":     {"POST /api/v1/machines/m/exec HTTP/1.1\r\nHost: x\r\n" + token + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n" + `{"command":["half"]}`, 400},
		"HTTP/0.9":           {"GET /healthz\r\n\r\n", 400},
		"no HTTP":            {"\x16\x03\x01\r\n\r\n", 400},
		"HTTP/2 by surprise": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401},
	} {
		t.Run(sentence, func(t *testing.T) {
			if status := n.raw(t, test.request, sentence == "half of a body"); status != test.status {
				t.Errorf("the status is %d", status)
			}
		})
	}
	if commands := n.fake.executed(); len(commands) > 0 || n.fake.drained > 0 {
		t.Errorf("smolvm was asked to execute %v and to drain %d times", commands, n.fake.drained)
	}
	if _, err := n.client(t, always(secret)).List(t.Context()); err != nil {
		t.Error(err)
	}
}

// raw sends bytes, says that there are no more if that is so, and reads an answer.
func (n *node) raw(t *testing.T, request string, end bool) (status int) {
	t.Helper()
	config := n.tls()
	config.NextProtos = []string{"http/1.1"}
	connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The node may answer and close before it has read all.
	_, _ = io.WriteString(connection, request)
	if end {
		if err := connection.(*tls.Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// TestWhatSmolvmGetsOfAClient: two headers, and nothing else that the client chose.
func TestWhatSmolvmGetsOfAClient(t *testing.T) {
	socket := socketFor(t)
	n := serveNodeAt(t, socket)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *http.Request, 1)
	smolvm := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(read(r.Body)))
		got <- r
		for name, value := range map[string]string{"Set-Cookie": "a=b", "X-Trace-Id": "0123456789abcdef", "Access-Control-Allow-Origin": "*", "Content-Type": "x/y", "Retry-After": "5"} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "<body>")
	})}
	go func() { _ = smolvm.Serve(listener) }()
	t.Cleanup(func() { smolvm.Close() })
	header := http.Header{
		"X-Trace-Id": {"abc"}, "Content-Type": {"application/json"}, "Cookie": {"a=b"}, "X-Forwarded-For": {"1.2.3.4"}, "User-Agent": {"evil"},
		"Accept-Encoding": {"gzip"}, "Te": {"trailers"}, "Connection": {"X-Own"}, "X-Own": {"1"}, "Origin": {"https://evil.example"}, "Expect": {"100-continue"},
	}
	answer, body := n.do(t, http.MethodPost, "/api/v1/machines?watch=true", `{"a":1}`, header)
	r := <-got
	want := http.Header{"X-Trace-Id": {"abc"}, "Content-Type": {"application/json"}, "Content-Length": {"7"}}
	if sent, _ := json.Marshal(r.Header); !sameHeader(r.Header, want) {
		t.Errorf("smolvm got %s", sent)
	}
	if r.URL.String() != "/api/v1/machines" || r.Host != "localhost" || read(r.Body) != `{"a":1}` {
		t.Errorf("smolvm got %s at %s", r.URL, r.Host)
	}
	if answer.StatusCode != http.StatusTeapot || body != "<body>" || answer.Header.Get("X-Trace-Id") != "0123456789abcdef" || answer.Header.Get("Retry-After") != "5" || answer.Header.Get("Content-Type") != "x/y" {
		t.Errorf("the client got %d %q %v", answer.StatusCode, body, answer.Header)
	}
	if answer.Header.Get("Set-Cookie")+answer.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the client got %v", answer.Header)
	}
	n.do(t, http.MethodGet, "/api/v1/machines/m", "", http.Header{"X-Trace-Id": {"a b"}, "Content-Type": {"application/json"}})
	if r := <-got; !sameHeader(r.Header, http.Header{}) {
		t.Errorf("smolvm got %v", r.Header)
	}
}

func read(r io.Reader) string {
	text, _ := io.ReadAll(r)
	return string(text)
}

func sameHeader(a, b http.Header) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func TestThereIsAnEndToRequestsAtATime(t *testing.T) {
	n := serveNode(t)
	n.fake.put(api.Machine{Name: "m", State: api.StateRunning})
	n.api.proxy.streams = make(chan struct{}, 1)
	c := n.client(t, always(secret))
	enough := errors.New("enough")
	err := c.Watch(t.Context(), func(api.WatchEvent) error {
		if err := c.Watch(t.Context(), func(api.WatchEvent) error { return enough }); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("a second stream: %v", err)
		}
		if _, err := c.Get(t.Context(), "m"); err != nil {
			t.Errorf("streams keep requests away: %v", err)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	eventually(t, "the slot is free again", func() bool { return len(n.api.proxy.streams) == 0 })
}
