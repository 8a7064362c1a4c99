package workload_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

// proxy copies bytes between its clients and a server until it is closed.
type proxy struct {
	address, target string
	// silent keeps connections open and forwards nothing.
	silent atomic.Bool
	// delay is the delay of everything that the server sends.
	delay atomic.Int64
	// accepted counts connections.
	accepted atomic.Int64

	mu   sync.Mutex
	open map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{address: listener.Addr().String(), target: target, open: map[net.Conn]bool{}}
	go p.serve(listener)
	t.Cleanup(func() {
		_ = listener.Close() // it may have been closed before
		p.cut()
	})
	return p
}

func (p *proxy) serve(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = c.Close() // as the server would
			continue
		}
		p.mu.Lock()
		p.open[c], p.open[server] = true, true
		p.mu.Unlock()
		go p.copy(server, c, func() time.Duration { return 0 })
		go p.copy(c, server, func() time.Duration { return time.Duration(p.delay.Load()) })
	}
}

// chunk is in transit until due.
type chunk struct {
	bytes []byte
	due   time.Time
}

// copy forwards what it reads, each piece after the delay, as a long line does: a piece does not wait for the one
// before.
func (p *proxy) copy(to, from net.Conn, delay func() time.Duration) {
	line := make(chan chunk, 1000)
	go func() {
		defer to.Close()
		defer from.Close()
		for c := range line {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				break
			}
		}
		for range line { // the reader is not blocked
		}
	}()
	defer close(line)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !p.silent.Load() {
			line <- chunk{bytes: bytes.Clone(buffer[:n]), due: time.Now().Add(delay())}
		}
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close() // it may have been closed before
	}
}

// stranger is a server that is not an API server.
type stranger struct {
	address   string
	authority pki.KeyPair
	client    pki.KeyPair

	mu    sync.Mutex
	paths []string
	ahead time.Duration
	// flooding makes it answer watches of ConfigMaps with more and more objects, and other watches with nothing.
	flooding bool
}

// floods sets flooding.
func (s *stranger) floods() *stranger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flooding = true
	return s
}

func flood(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	w.(http.Flusher).Flush()
	if !strings.HasSuffix(r.URL.Path, "/configmaps") {
		<-r.Context().Done()
		return
	}
	text := strings.Repeat("x", 100<<10)
	for i := 1; ; i++ {
		_, err := w.Write(addedEvent(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("c%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i),
				Labels: map[string]string{"giantswarm.io/managed-by": "kvm-operator"},
			},
			Data: map[string]string{"a": text},
		}))
		if err != nil {
			return
		}
	}
}

// addedEvent is an event of a watch as an API server sends it.
func addedEvent(c *corev1.ConfigMap) []byte {
	raw, err := c.Marshal()
	if err != nil {
		panic(err)
	}
	object := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: raw}
	if raw, err = object.Marshal(); err != nil {
		panic(err)
	}
	event := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), raw...)}}
	if raw, err = event.Marshal(); err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

// isAhead sets the clock skew of the server.
func (s *stranger) isAhead(by time.Duration) *stranger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = by
	return s
}

// asked returns the paths of the requests so far.
func (s *stranger) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.paths...)
}

// access returns the access of an operator that trusts the server's CA.
func (s *stranger) access() workload.Access {
	return workload.Access{
		Addresses: []string{s.address}, ServerName: serverName,
		CA: s.authority.Certificate, Certificate: s.client.Certificate, Key: s.client.Key,
	}
}

// newStranger starts a server with a certificate for the name, issued at the given time. It answers with the status.
func newStranger(t *testing.T, name string, issued time.Time, status int, configure ...func(*tls.Config)) *stranger {
	t.Helper()
	issuer := pki.Embedded{Clock: testingclock.NewFakePassiveClock(issued)}
	s := &stranger{}
	var err error
	s.authority, err = issuer.Issue(pki.Request{Name: pki.CA, CommonName: "stranger", Usage: pki.UsageAuthority}, pki.KeyPair{})
	must(t, err)
	s.client, err = issuer.Issue(pki.Request{Name: pki.API, Authority: pki.CA, CommonName: "operator", Usage: pki.UsageClient}, s.authority)
	must(t, err)
	serving, err := issuer.Issue(pki.Request{
		Name: "server", Authority: pki.CA, CommonName: name, DNSNames: []string{name}, Usage: pki.UsageServer,
	}, s.authority)
	must(t, err)
	pair, err := tls.X509KeyPair(serving.Certificate, serving.Key)
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.paths = append(s.paths, r.URL.Path)
		ahead, flooding := s.ahead, s.flooding && r.URL.Query().Get("watch") == "true"
		s.mu.Unlock()
		if flooding {
			flood(w, r)
			return
		}
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac failed: not finished\nreadyz check failed\n")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	for _, c := range configure {
		c(server.TLS)
	}
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	t.Cleanup(server.Close)
	s.address = strings.TrimPrefix(server.URL, "https://")
	return s
}

// refuseClients makes the handshake fail because of the client's certificate.
func refuseClients(c *tls.Config) {
	c.ClientAuth = tls.RequireAnyClientCert
	c.MaxVersion = tls.VersionTLS12
	c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("not welcome") }
}

// newMute accepts connections and never answers.
func newMute(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var open []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close() // this ends the loop above
		<-ended
		for _, c := range open {
			_ = c.Close() // the client has disconnected
		}
	})
	return listener.Addr().String()
}

// newClosed returns an address without a listener. The test keeps the port, so that no other test listens there.
func newClosed(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := unix.Getsockname(fd)
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

func quiet() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }
