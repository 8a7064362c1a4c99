package living_test

import (
	"crypto/tls"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	return listener
}

// newLine returns a line to an API server until the end of the test.
func newLine(t testing.TB, target string, delay time.Duration) *tenant.Line {
	t.Helper()
	l, err := tenant.NewLine(t.Context(), target, delay)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// newClosed returns an address without a listener.
func newClosed(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	must(t, listener.Close())
	return listener.Addr().String()
}

// newHole accepts connections, as the kernel does, and never answers.
func newHole(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	t.Cleanup(func() { _ = listener.Close() }) // it has accepted no connections
	return listener.Addr().String()
}

// newStranger serves the names of the API server's certificate with a certificate of the CA, issued at the given time.
// It answers every request with success.
func newStranger(t testing.TB, s *server, authority pki.KeyPair, issued clock.PassiveClock) string {
	t.Helper()
	pair, err := tenant.APIPair(s.IDs, authority, issued)
	must(t, err)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	must(t, err)
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	stranger.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	stranger.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	return strings.TrimPrefix(stranger.URL, "https://")
}

// longAgo is when a certificate was issued that has expired since then.
func longAgo() clock.PassiveClock {
	return testingclock.NewFakePassiveClock(time.Now().AddDate(-2, 0, 0))
}
