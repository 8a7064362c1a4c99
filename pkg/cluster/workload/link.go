package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apiclock"
)

const (
	// dialTimeout and handshakeTimeout bound the connection to one address, connectTimeout the time until any address
	// responds.
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 10 * time.Second
	connectTimeout   = 30 * time.Second
	// silenceBeforePing and pingTimeout determine how soon a dead connection is closed.
	silenceBeforePing = 10 * time.Second
	pingTimeout       = 15 * time.Second
	// requestTimeout bounds every request except watches. The API server may spend 30 s on admission webhooks.
	requestTimeout = 40 * time.Second
)

// link is the HTTP client of one attempt to reach a cluster. It observes the result of each request, and close leaves
// neither open connections nor hanging requests.
type link struct {
	host      string
	addresses *addresses
	tls       *tls.Config
	transport *http.Transport
	// clock is the clock of the API server, and way is the transport from which it learns the time.
	clock *apiclock.Clock
	way   http.RoundTripper
	// allowance is how much caches may read of the cluster, and intake how much of that they may store.
	allowance, intake *rate.Limiter
	// scheme decodes what is read, and reading bounds how much is being read.
	scheme  *runtime.Scheme
	reading *semaphore.Weighted
	// happened receives a value when noteWatches has recorded something.
	happened chan struct{}

	mu sync.Mutex
	// watches is how many are open.
	watches int
	// failure is the last failure since the last call of tally.
	failure error
	// connections are the open ones; nil once the link is closed.
	connections map[*connection]struct{}

	closed context.Context // it is the lifetime of the link
	end    context.CancelFunc
}

func newLink(a *addresses, config *tls.Config, scheme *runtime.Scheme, allowance, intake *rate.Limiter) *link {
	l := &link{
		host: net.JoinHostPort(config.ServerName, "443"), addresses: a, tls: config, allowance: allowance, intake: intake,
		scheme: scheme, reading: semaphore.NewWeighted(mostReading),
		happened: make(chan struct{}, 1), connections: map[*connection]struct{}{}, clock: apiclock.New(clock.RealClock{}),
	}
	l.closed, l.end = context.WithCancel(context.Background())
	l.transport = &http.Transport{
		DialTLSContext: l.dial, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: largestHeader,
		// Nothing is sent without TLS, even if an API server redirects its clients.
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errElsewhere },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: unreadOfStream, MaxReceiveBufferPerConnection: unreadOfConnection,
			SendPingTimeout: silenceBeforePing, PingTimeout: pingTimeout, WriteByteTimeout: silenceBeforePing + pingTimeout,
		},
	}
	l.way = l.clock.Transport(l.transport)
	return l
}

// config returns the configuration of clients that use the link. They have no rate limit of their own, because the API
// server's priority and fairness knows better what it can handle.
func (l *link) config() (*rest.Config, *http.Client) {
	return &rest.Config{Host: "https://" + l.host, QPS: -1, UserAgent: userAgent}, clientOver(l)
}

// errElsewhere prevents the operator from sending requests to other servers on behalf of an API server.
var errElsewhere = errors.New("the API server redirects to another address")

// clientOver returns an HTTP client that does not follow redirects. API servers have no reason to redirect, and an
// attacker who controls one could make the operator send requests, including Secrets, to addresses of the management
// network.
func clientOver(way http.RoundTripper) *http.Client {
	return &http.Client{Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// close closes all connections. Requests in flight fail at once.
func (l *link) close() {
	l.end()
	l.mu.Lock()
	open := l.connections
	l.connections = nil
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // it is discarded
	}
	l.transport.CloseIdleConnections()
}

// dial connects to the first address with which a TLS handshake succeeds. The host name in the transport's requests
// represents the cluster and is not resolved.
func (l *link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer context.AfterFunc(l.closed, cancel)()
	var errs addressesError
	for _, address := range l.addresses.order() {
		c, err := l.dialOne(ctx, address)
		if ctx.Err() == nil || err == nil {
			l.addresses.tried(address, err)
		}
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errNoAddress
	}
	return nil, errs
}

func (l *link) dialOne(ctx context.Context, address string) (*tls.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: silenceBeforePing, Interval: pingTimeout, Count: 3,
	}}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, link: l}
	if !l.keep(c) {
		_ = raw.Close() // it was never used
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(c, l.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the error of the handshake matters more
		return nil, err
	}
	return secured, nil
}

// keep records a connection, unless the link is closed.
func (l *link) keep(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connections == nil {
		return false
	}
	l.connections[c] = struct{}{}
	return true
}

// connection is removed from its link when it is closed.
type connection struct {
	net.Conn
	link *link
}

// Close closes the connection.
func (c *connection) Close() error {
	c.link.mu.Lock()
	delete(c.link.connections, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
