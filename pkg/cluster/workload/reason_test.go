package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dialed is how package net reports the error of a system call.
func dialed(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
}

// verified is how crypto/tls reports the error of a verification.
func verified(err error) error { return &tls.CertificateVerificationError{Err: err} }

// alerted is how crypto/tls reports an alert of the peer.
func alerted(text string) error {
	return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)}
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Reason
	}{
		"the key cannot be read":              {&accessError{"no key"}, AccessInvalid},
		"there is no address":                 {errNoAddress, NoAddress},
		"it sends too much":                   {errResponseTooLarge, ResponseTooLarge},
		"500":                                 {&statusError{code: 500}, NotReady},
		"401":                                 {&statusError{code: 401}, Unauthorized},
		"404":                                 {&statusError{code: 404}, Other},
		"the certificate has expired":         {verified(x509.CertificateInvalidError{Reason: x509.Expired}), CertificateExpired},
		"the certificate is not for servers":  {verified(x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}), CertificateInvalid},
		"the authority may not sign":          {verified(x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}), CertificateInvalid},
		"the certificate is for another name": {verified(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}), CertificateInvalid},
		"the certificate cannot be verified at all":  {verified(errors.New("tls: odd")), CertificateInvalid},
		"the authority is unknown":                   {verified(x509.UnknownAuthorityError{}), UnknownAuthority},
		"alert: bad certificate":                     {alerted("bad certificate"), Unauthorized},
		"alert: unknown certificate authority":       {alerted("unknown certificate authority"), Unauthorized},
		"alert: certificate required":                {alerted("certificate required"), Unauthorized},
		"alert: access denied":                       {alerted("access denied"), Unauthorized},
		"alert: internal error":                      {alerted("internal error"), Other},
		"no TLS is spoken":                           {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, Other},
		"refused":                                    {dialed(syscall.ECONNREFUSED), Refused},
		"reset":                                      {dialed(syscall.ECONNRESET), Refused},
		"the pipe is broken":                         {dialed(syscall.EPIPE), Refused},
		"closed before an answer":                    {io.EOF, Refused},
		"closed within an answer":                    {fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), Refused},
		"no route to host":                           {dialed(syscall.EHOSTUNREACH), NoRoute},
		"no route to network":                        {dialed(syscall.ENETUNREACH), NoRoute},
		"no such address":                            {dialed(syscall.EADDRNOTAVAIL), NoRoute},
		"the name is not known":                      {&net.DNSError{Err: "no such host", IsNotFound: true}, NoRoute},
		"the name server fails":                      {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, NoRoute},
		"the name server does not answer":            {&net.DNSError{Err: "i/o timeout", IsTimeout: true}, Timeout},
		"no answer from the kernel's point of view":  {dialed(syscall.ETIMEDOUT), Timeout},
		"no answer to the dialer":                    {&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, Timeout},
		"no answer to the request":                   {context.DeadlineExceeded, Timeout},
		"no answer, as net/http puts it":             {&url.Error{Op: "Get", Err: context.DeadlineExceeded}, Timeout},
		"no answer to a ping":                        {errors.New("http2: client connection lost"), Timeout},
		"the caches were not filled":                 {errNotFilled, Other},
		"a watch is missing":                         {errNoWatch, Timeout},
		"anything else":                              {errors.New("what?"), Other},
		"addresses: the certificate before silence":  {addressesError{context.DeadlineExceeded, verified(x509.UnknownAuthorityError{})}, UnknownAuthority},
		"addresses: refused before silence":          {addressesError{context.DeadlineExceeded, dialed(syscall.ECONNREFUSED)}, Refused},
		"addresses: the first of two that are alike": {addressesError{dialed(syscall.ECONNREFUSED), dialed(syscall.ECONNRESET)}, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(c.err); got != c.want {
				t.Errorf("classify(%v) = %s, want %s", c.err, got, c.want)
			}
			if got := classify(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
				t.Errorf("wrapped: %s, want %s", got, c.want)
			}
		})
	}
}

func TestEveryStatusHasAReason(t *testing.T) {
	for code := 100; code < 600; code++ {
		want := Other
		switch {
		case code == http.StatusUnauthorized, code == http.StatusForbidden:
			want = Unauthorized
		case code == http.StatusTooManyRequests, code >= 500:
			want = NotReady
		}
		if got := classify(&statusError{code: code}); got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
}

func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"failing checks are named": {&statusError{code: 500, failing: []string{"etcd", "informer-sync"}}, "the API server is not ready: etcd, informer-sync"},
		"a clock that is right": {
			&statusError{code: 401, ahead: -time.Minute}, "the API server does not accept the operator's certificate",
		},
		"a clock that is late": {
			&statusError{code: 401, ahead: -time.Hour},
			"the API server does not accept the operator's certificate; its clock is behind the operator's by more than five minutes",
		},
		"an overloaded server":       {&statusError{code: 429}, "the API server is not ready"},
		"the name that is missing":   {verified(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "b"}), "the API server's certificate is not one for master.abc12"},
		"what is wrong with the key": {&accessError{"the key is odd"}, "the key is odd"},
		"ports and addresses change from attempt to attempt": {
			&net.OpError{Op: "read", Source: &net.TCPAddr{Port: 40001}, Err: syscall.ECONNRESET}, "the connection to the API server is refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unreachable(c.err, "master.abc12").Message; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestEveryReasonHasAMessageAndAPlace(t *testing.T) {
	seen := map[string]Reason{}
	for _, reason := range farthest {
		text := message(reason, &accessError{"access"}, "name")
		if other, ok := seen[text]; ok || text == "" {
			t.Errorf("%s has the message %q, as has %q", reason, text, other)
		}
		seen[text] = reason
	}
	if len(seen) != 12 {
		t.Errorf("%d reasons are listed by how far they got", len(seen))
	}
}

func TestFailingChecks(t *testing.T) {
	for name, c := range map[string]struct {
		report string
		want   []string
	}{
		"the server is ready": {report: "ok"},
		"hooks of the start are left out": {
			report: "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: not finished\n[+]log ok\nreadyz check failed",
			want:   []string{"etcd"},
		},
		"no more than a few":       {report: strings.Repeat("[-]x failed\n", 20), want: []string{"x", "x", "x", "x", "x"}},
		"a line that does not end": {report: "[-]" + strings.Repeat("x", 100_000)},
		"nothing":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, failingChecks(strings.NewReader(c.report))); diff != "" {
				t.Errorf("failing checks (-want +got):\n%s", diff)
			}
		})
	}
}
