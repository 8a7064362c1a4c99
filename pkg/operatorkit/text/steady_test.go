package text_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// TestSteady: only what changes without new information is removed.
func TestSteady(t *testing.T) {
	for of, want := range map[string]string{
		"pleg was last seen active 3m2.123s ago; threshold is 3m0s":                                "pleg was last seen active … ago; threshold is …",
		"back-off 5m0s restarting failed container":                                                "back-off … restarting failed container",
		"took 12ms, 1.5µs and 3h":                                                                  "took …, … and …",
		"certificate has expired: current time 2026-11-21T12:00:00Z is after 2026-11-20T11:00:00Z": "certificate has expired: current time 2026-11-21 is after 2026-11-20",
		"at 2026-11-21 12:00:00.123456 +0000 UTC":                                                  "at 2026-11-21",
		"at 2026-11-21 12:00:00.123456 +0000 UTC m=+0.123, then":                                   "at 2026-11-21, then",
		"notAfter of 2031-05-06T07:08:09.000000009Z that is":                                       "notAfter of 2031-05-06 that is",
		"read udp 10.0.0.1:43211->10.96.0.10:53: i/o timeout":                                      "read udp 10.0.0.1->10.96.0.10:53: i/o timeout",
		"read tcp [fd00::1]:43211->[fd00::2]:2379: read: connection reset by peer":                 "read tcp [fd00::1]->[fd00::2]:2379: read: connection reset by peer",
		"dial tcp 10.0.0.1:443: connect: connection refused":                                       "dial tcp 10.0.0.1:443: connect: connection refused",
		"stream error: stream ID 47; INTERNAL_ERROR; received from peer":                           "stream error: stream ID …; INTERNAL_ERROR; received from peer",
		"http2: server sent GOAWAY and closed the connection; LastStreamID=1999, ErrCode=NO_ERROR": "http2: server sent GOAWAY and closed the connection; LastStreamID=…, ErrCode=NO_ERROR",
		"cni plugin not initialized on worker-5s-abc, 3 nodes, v1.35.4, 4Gi":                       "cni plugin not initialized on worker-5s-abc, 3 nodes, v1.35.4, 4Gi",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused"`:                                       "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused",
		`rpc error: code = DeadlineExceeded desc = latest balancer error: connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused"`:           "transport: Error while dialing: dial tcp 10.0.0.1:2379: connect: connection refused",
		`rpc error: code = Unavailable desc = connection error: desc = "error reading server preface: read tcp 10.0.0.1:41002->10.0.0.2:2379: a \"b\""`:                                             `error reading server preface: read tcp 10.0.0.1->10.0.0.2:2379: a \"b\"`,
		"rpc error: code = DeadlineExceeded desc = received context error while waiting for new LB policy update: context deadline exceeded":                                                        "context deadline exceeded",
		`connection error: desc = "transport: authentication handshake failed: x509: certificate has expired or is not yet valid: current time 2026-11-21T12:00:00Z is after 2026-11-20T11:00:00Z"`: "transport: authentication handshake failed: x509: certificate has expired or is not yet valid: current time 2026-11-21 is after 2026-11-20",
		"etcdserver: can only promote a learner member which is in sync with leader":                                                                                                                "etcdserver: can only promote a learner member which is in sync with leader",
		"": "",
	} {
		if got := text.Steady(of); got != want {
			t.Errorf("%q becomes %q, want %q", of, got, want)
		}
	}
}

// TestSteadyTextsAreShort: root on a node can write anything to the status of its Node, and the operator has to store
// what it passes on.
func TestSteadyTextsAreShort(t *testing.T) {
	for _, piece := range []string{"ü<", " 1s", `connection error: desc = "`, "2026-11-21T12:00:00Z"} {
		got := text.Steady(strings.Repeat(piece, 1<<19))
		if len(got) > text.MostSteady || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("of many %q, %d bytes are left, which end in %q", piece, len(got), got[max(0, len(got)-10):])
		}
	}
}

// TestCause: what is left of the error of a request is not about its address.
func TestCause(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Source: &net.TCPAddr{Port: 43210}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	of := func(err error) error {
		return fmt.Errorf("asking: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1:8200/v1/a", Err: err})
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a refused connection":         {of(refused), "connection refused"},
		"a refused one without a call": {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "connection refused"},
		"a name that is not known":     {of(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "v", Err: "no such host"}}), "lookup v: no such host"},
		"an ended connection":          {of(fmt.Errorf("a: %w", io.EOF)), "it ended the connection"},
		"a cut response":               {io.ErrUnexpectedEOF, "it ended the connection"},
		"another error":                {of(errors.New("after 3s, a is wrong")), "after …, a is wrong"},
		"one that is no request's":     {errors.New("reading a: b"), "reading a: b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.Cause(test.err); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
