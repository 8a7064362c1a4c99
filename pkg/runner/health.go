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

	"github.com/kvm-operator/kvm-operator/pkg/qmp"
)

const (
	machineRunning = "running"
	// machineFull is QEMU's word for a machine that it stopped because a disk could not be written.
	machineFull = "io-error"
	healthOK    = "ok"
	// healthTimeout is less than that of the kubelet's exec probe, so that a probe gets the reason and not a timeout.
	healthTimeout = 3 * time.Second
	// unreadyMost is how long an API server that has served may say that it is not ready and count as one that serves.
	unreadyMost = 5 * time.Minute
)

// askMachine is QEMU's own word on the machine, and whether it gave one.
func askMachine(ctx context.Context, monitor *qmp.Client) (string, bool) {
	status, err := monitor.Status(ctx)
	if err != nil {
		return err.Error(), false
	}
	return status.Status, true
}

// reach is how the runner gets at the guest. The zero value is that of a guest behind QEMU's address translation: there is no way.
type reach struct {
	// address is the guest's.
	address netip.Addr
	// sent counts the packets that the guest has sent; nil where nobody knows.
	sent func() (uint64, error)
	// client asks the guest for its health.
	client *http.Client
}

// healthClient opens one connection a question: a guest that was rebooted forgets the old ones without a word. It believes any
// certificate, as kubelets do when they probe: the answer is one word, and nothing is told to whoever gives it.
func healthClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Timeout: healthTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: nil, DialContext: dial,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // nothing is told to whoever answers
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askKubelet asks the guest's kubelet for its health through the guest's address. Without a port nobody is asked.
func askKubelet(ctx context.Context, g *guest, port int) string {
	if port == 0 || !g.address.IsValid() {
		return ""
	}
	if err := g.askHealth(ctx, "http://"+g.host(port)+"/healthz"); err != nil {
		return err.Error()
	}
	return healthOK
}

// askAPI asks a master's API server whether it serves. One that has served is taken to do so while it is only slow, or not ready for a
// moment: without it behind its Service, clients would find nobody at all. One that says for long that it is not ready has no etcd.
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
	if err == nil || g.served.Load() { // another question may have found it gone meanwhile
		return healthOK
	}
	return err.Error()
}

// unreadyFor is how long the API server has said that it is not ready, now included.
func (g *guest) unreadyFor() time.Duration {
	now := time.Now()
	g.unready.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, g.unready.Load()))
}

// host is where a port of the guest is.
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

// answerError is an answer that is not that all is well.
type answerError struct{ url, status, text string }

// Error tells the answer.
func (e *answerError) Error() string {
	return fmt.Sprintf("%s answers %s: %s", e.url, e.status, e.text)
}
