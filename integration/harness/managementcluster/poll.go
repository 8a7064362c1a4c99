package managementcluster

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

const pollInterval = 25 * time.Millisecond

// poll requests a URL as administrator until the answer is 200. The cluster's own CA must have signed the server's
// certificate, so another process on that port is not mistaken for the component.
func (a *authority) poll(ctx context.Context, url string, dial func(context.Context, string, string) (net.Conn, error)) error {
	pair, err := a.issue(clientCertificate("admin", administrators))
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.certificate, pair.key)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{certificate}},
	}
	defer transport.CloseIdleConnections()
	return repeat(ctx, func(ctx context.Context) error { return poll.Get(ctx, transport, url) })
}

// repeat calls try until it succeeds or the context ends.
func repeat(ctx context.Context, try func(context.Context) error) error {
	return poll.Until(ctx, pollInterval, nil, try)
}
