package runner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

const (
	machineRunning = "running"
	// machineFull is QEMU's status of a machine that it paused because a disk could not be written.
	machineFull = "io-error"
	healthOK    = "ok"
	// healthTimeout is shorter than that of the kubelet's exec probe, so that a probe gets the reason and not a
	// timeout.
	healthTimeout = 3 * time.Second
	// unreadyMost is how long an API server that has served may report that it is not ready and still count as serving.
	unreadyMost = 5 * time.Minute
)

// askMachine returns QEMU's status of the machine, and whether QEMU responded.
func askMachine(ctx context.Context, monitor *qmp.Client) (string, bool) {
	status, err := monitor.Status(ctx)
	if err != nil {
		return err.Error(), false
	}
	return status.Status, true
}

// reach is how the runner reaches the guest. The zero value is for a guest behind QEMU's address translation, which
// cannot be reached.
type reach struct {
	// address is the guest's.
	address netip.Addr
	// sent returns how many packets the guest has sent; nil if that is unknown.
	sent func() (uint64, error)
	// client queries the guest's health.
	client *http.Client
}

// healthClient opens one connection per request, because a guest that was rebooted forgets the old ones silently. It
// accepts any certificate, as kubelets do for probes: the response is one word, and the server learns nothing.
func healthClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Timeout: healthTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: nil, DialContext: dial,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server learns nothing
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askKubelet asks the guest's kubelet for its health through the guest's address. Without a port it does nothing.
func askKubelet(ctx context.Context, g *guest, port int) string {
	if port == 0 || !g.address.IsValid() {
		return ""
	}
	if err := g.askHealth(ctx, "http://"+g.host(port)+"/healthz"); err != nil {
		return err.Error()
	}
	return healthOK
}

// askAPI asks a master's API server whether it serves. One that has served still counts while it is only slow, or
// briefly not ready: without any endpoint behind their Service, clients would reach no API server at all. One that is
// not ready for long has no etcd.
func askAPI(ctx context.Context, g *guest, port int) string {
	if port == 0 || !g.address.IsValid() {
		return ""
	}
	err := g.askHealth(ctx, "https://"+g.host(port)+"/readyz")
	if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		g.served.Store(err == nil)
		g.unready.Store(0)
	}
	answered := new(answerError)
	if errors.As(err, &answered) && g.unreadyFor() >= unreadyMost {
		g.served.Store(false)
	}
	if err == nil || g.served.Load() { // a concurrent request may have found it gone meanwhile
		return healthOK
	}
	return err.Error()
}

// unreadyFor returns for how long the API server has been not ready, including now.
func (g *guest) unreadyFor() time.Duration {
	now := time.Now()
	g.unready.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, g.unready.Load()))
}

// host returns host:port for a port of the guest.
func (g *guest) host(port int) string {
	return net.JoinHostPort(g.address.String(), strconv.Itoa(port))
}

func (g *guest) askHealth(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := g.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 256))
	if err == nil && response.StatusCode != http.StatusOK {
		err = &answerError{url: url, status: response.Status, text: strings.TrimSpace(string(body))}
	}
	return err
}

// answerError is a response other than success.
type answerError struct{ url, status, text string }

// Error describes the response.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s answers %s: %s", e.url, e.status, e.text)
}
