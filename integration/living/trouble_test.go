package living_test

import (
	"bytes"
	"crypto/tls"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// line hands bytes on between its clients and an API server, as long as it is not cut.
type line struct {
	address, target string
	// delay is how long everything takes that the server says.
	delay time.Duration

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newLine(t testing.TB, target string, delay time.Duration) *line {
	t.Helper()
	listener := listen(t)
	l := &line{address: listener.Addr().String(), target: target, delay: delay, open: map[net.Conn]bool{}}
	go l.serve(listener)
	t.Cleanup(func() {
		_ = listener.Close() // it ends serve
		l.cut()
	})
	return l
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	return listener
}

func (l *line) serve(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil || !l.keep(c, server) {
			_ = c.Close() // as a server would that is not there
			if server != nil {
				_ = server.Close() // nobody has used it
			}
			continue
		}
		go l.copy(server, c, 0)
		go l.copy(c, server, l.delay)
	}
}

func (l *line) keep(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false
	}
	for _, c := range ends {
		l.open[c] = true
	}
	return true
}

// chunk is on its way until due.
type chunk struct {
	bytes []byte
	due   time.Time
}

// copy hands on what is read, each piece after the delay, as a long line does: the next piece does not wait for the last.
func (l *line) copy(to, from net.Conn, delay time.Duration) {
	way := make(chan chunk, 1000)
	go func() {
		defer to.Close()
		defer from.Close()
		for c := range way {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				break
			}
		}
		for range way { // whoever reads is not held up
		}
	}()
	defer close(way)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		way <- chunk{bytes: bytes.Clone(buffer[:n]), due: time.Now().Add(delay)}
	}
}

// cut closes all connections and takes no others until mend.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.open {
		_ = c.Close() // it may have been closed before
	}
	clear(l.open)
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// newClosed is an address where nobody listens.
func newClosed(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	must(t, listener.Close())
	return listener.Addr().String()
}

// newHole accepts connections, as the kernel does, and says nothing.
func newHole(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	t.Cleanup(func() { _ = listener.Close() }) // it has accepted nobody
	return listener.Addr().String()
}

// newStranger serves the names of the API server's certificate with one of the authority, issued at the time, and says yes
// to everything.
func newStranger(t testing.TB, s *server, authority pki.KeyPair, issued clock.PassiveClock) string {
	t.Helper()
	pair, err := apiPair(s.ids, authority, issued)
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
