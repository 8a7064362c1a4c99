package smolvmruntime

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// dial opens a connection to the node API, which speaks HTTP/1.1.
func (n *node) dial(t *testing.T) *tls.Conn {
	t.Helper()
	config := n.tls()
	config.NextProtos = []string{"http/1.1"}
	connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection.(*tls.Conn)
}

// TestConnectionsOfStrangersEnd: without a token, no request holds a connection, whatever of its body is missing.
func TestConnectionsOfStrangersEnd(t *testing.T) {
	n := serveNode(t)
	n.fake.put(api.Machine{Name: "m", State: api.StateRunning})
	const token = "Authorization: Bearer " + secret + "\r\n"
	for sentence, test := range map[string]struct {
		request string
		status  int
	}{
		"no body":                        {"GET /api/v1/machines HTTP/1.1\r\nHost: x\r\n\r\n", 401},
		"a body that never comes":        {"POST /api/v1/machines/m/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 401},
		"half of a chunk":                {"POST /api/v1/machines HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 401},
		"a body for the proof of life":   {"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 405},
		"a proof of life with a body":    {"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 200},
		"a proof of life":                {"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", 200},
		"with a token, an unwanted body": {"POST /api/v1/machines/m/stop HTTP/1.1\r\nHost: x\r\n" + token + "Content-Length: 1000\r\n\r\n", 200},
		"half of a header":               {"GET /livez HTTP/1.1\r\nHost: x", 408},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			connection := n.dial(t)
			if err := connection.SetDeadline(time.Now().Add(headerTime + 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(connection, test.request); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(connection)
			answer, err := http.ReadResponse(reader, nil)
			if test.status == http.StatusRequestTimeout && err != nil {
				return // The connection was closed without an answer, before the deadline of the test.
			}
			if err != nil || answer.StatusCode != test.status {
				t.Fatalf("%+v: %v", answer, err)
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, reader)
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Error("the connection is still open")
			}
		})
	}
}

// TestLongAnswersOutliveTheDeadlineOfReading: the deadline of the server ends with authentication.
func TestLongAnswersOutliveTheDeadlineOfReading(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: it waits for longer than a minute")
	}
	t.Parallel()
	n := serveNode(t)
	n.fake.put(api.Machine{Name: "m", State: api.StateRunning})
	connection := n.dial(t)
	began := time.Now()
	request := "GET /api/v1/machines?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secret + "\r\n\r\n"
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for time.Since(began) < bodyTime+2*time.Second {
		if err := connection.SetDeadline(time.Now().Add(2 * bodyTime)); err != nil {
			t.Fatal(err)
		}
		n.fake.put(api.Machine{Name: "m", State: api.StateRunning, CreatedAt: time.Now().UnixNano()})
		if !lines.Scan() {
			t.Fatalf("the stream ended after %s: %v", time.Since(began), lines.Err())
		}
	}
}

func TestACrowdHasBounds(t *testing.T) {
	c := newCrowd(listen(t), 3, 2)
	defer c.Close()
	for i, step := range []struct {
		source  string
		arrives bool
		want    bool
	}{
		{"a", true, true}, {"a", true, true}, {"a", true, false}, {"b", true, true}, {"c", true, false}, {"a", false, true},
		{"c", true, true}, {"b", true, false}, {"c", false, true}, {"a", true, true}, {"a", true, false},
	} {
		if !step.arrives {
			c.leave(step.source)
		} else if got := c.enter(step.source); got != step.want {
			t.Fatalf("step %d: %s enters: %v", i, step.source, got)
		}
	}
	for _, source := range []string{"a", "a", "b"} {
		c.leave(source)
	}
	if c.all != 0 || len(c.ofOne) != 0 {
		t.Errorf("%d are left, of %v", c.all, c.ofOne)
	}
}

// TestConnectionsOfOneAddressAreBounded: one more is closed at once, and one that ends makes room.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	n := serveNode(t)
	var open []net.Conn
	for range maxPerSource {
		open = append(open, n.dial(t))
	}
	one := &tls.Dialer{Config: n.tls()}
	if connection, err := one.DialContext(t.Context(), "tcp", n.address); err == nil {
		connection.Close()
		t.Fatal("one more is served")
	}
	open[0].Close()
	eventually(t, "there is room again", func() bool {
		connection, err := one.DialContext(t.Context(), "tcp", n.address)
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
}

func TestSources(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7", "[::ffff:192.0.2.7]:2": "192.0.2.7", "[2001:db8::1]:3": "2001:db8::1", "[fe80::1%eth0]:4": "fe80::1", "@": "@", "": "",
	} {
		if got := sourceOf(remote); got != want {
			t.Errorf("%q comes from %q", remote, got)
		}
	}
}
