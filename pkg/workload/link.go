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

	"github.com/kvm-operator/kvm-operator/pkg/apiclock"
)

const (
	// dialTimeout and handshakeTimeout bound the way to one address, connectTimeout that to the first of all that answers.
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 10 * time.Second
	connectTimeout   = 30 * time.Second
	// silenceBeforePing and pingTimeout are how soon a connection that nothing comes through any more is given up.
	silenceBeforePing = 10 * time.Second
	pingTimeout       = 15 * time.Second
	// requestTimeout bounds every request but watches. The API server may spend 30 s on admission webhooks.
	requestTimeout = 40 * time.Second
)

// link is the HTTP client of one attempt to reach a cluster. It sees all that becomes of requests, and close leaves nothing
// of it: neither connections nor requests that hang.
type link struct {
	host      string
	addresses *addresses
	tls       *tls.Config
	transport *http.Transport
	// clock tells the time of the API server, and way is the transport that it learns from.
	clock *apiclock.Clock
	way   http.RoundTripper
	// allowance is what caches may read of the cluster, and intake what they may take in of that.
	allowance, intake *rate.Limiter
	// scheme decodes what is read, and reading bounds what of it is under way.
	scheme  *runtime.Scheme
	reading *semaphore.Weighted
	// happened gets a value when something was noted in watches.
	happened chan struct{}

	mu sync.Mutex
	// watches is how many are open.
	watches int
	// failure is the last trouble since somebody asked.
	failure error
	// connections are the open ones; nil once the link is closed.
	connections map[*connection]struct{}

	closed context.Context // it stands for the life of the link
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
		// Nothing is said without TLS, wherever an API server sends its clients.
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errElsewhere },
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: unreadOfStream, MaxReceiveBufferPerConnection: unreadOfConnection,
			SendPingTimeout: silenceBeforePing, PingTimeout: pingTimeout, WriteByteTimeout: silenceBeforePing + pingTimeout,
		},
	}
	l.way = l.clock.Transport(l.transport)
	return l
}

// config is that of clients which use the link: without limits of their own, for the API server's fairness queues know
// better than a fixed rate what it can bear.
func (l *link) config() (*rest.Config, *http.Client) {
	return &rest.Config{Host: "https://" + l.host, QPS: -1, UserAgent: userAgent}, clientOver(l)
}

// errElsewhere keeps an API server from having the operator ask others for it.
var errElsewhere = errors.New("the API server leads elsewhere")

// clientOver is an HTTP client that takes a redirection for the answer that it is: no API server has a reason for one, and whoever controls one
// could have the operator send requests, Secrets included, to addresses of the management network.
func clientOver(way http.RoundTripper) *http.Client {
	return &http.Client{Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// close cuts all connections. Requests under way fail at once.
func (l *link) close() {
	l.end()
	l.mu.Lock()
	open := l.connections
	l.connections = nil
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // it is being thrown away
	}
	l.transport.CloseIdleConnections()
}

// dial connects to the first address that a TLS handshake succeeds with. The name that the transport asks for stands for
// the cluster and is not looked up.
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
		_ = raw.Close() // nobody has seen it
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(c, l.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the handshake says what is wrong
		return nil, err
	}
	return secured, nil
}

// keep remembers a connection, unless the link has been closed.
func (l *link) keep(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connections == nil {
		return false
	}
	l.connections[c] = struct{}{}
	return true
}

// connection is forgotten by its link when it is closed.
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
