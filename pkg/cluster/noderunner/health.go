package noderunner

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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

const (
	// healthTimeout bounds one request to the guest.
	healthTimeout = 3 * time.Second
	// unreadyMost is how long an API server that has served may report that it is not ready and still count as serving.
	unreadyMost = 5 * time.Minute
)

// health asks the guest's kubelet and API server how they are. The zero value is for a guest that cannot be reached.
type health struct {
	// address is the guest's.
	address netip.Addr
	client  *http.Client
	// served says that its API server has been ready, and has not been away since.
	served atomic.Bool
	// unready is since when its API server reports that it is not ready, in nanoseconds since 1970; zero while it is
	// ready.
	unready atomic.Int64
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
func (h *health) askKubelet(ctx context.Context, port int) string {
	if port == 0 || !h.address.IsValid() {
		return ""
	}
	if err := h.askHealth(ctx, "http://"+h.host(port)+"/healthz"); err != nil {
		return err.Error()
	}
	return keeper.OK
}

// askAPI asks a master's API server whether it serves. One that has served still counts while it is only slow, or
// briefly not ready: without any endpoint behind their Service, clients would reach no API server at all. One that is
// not ready for long has no etcd.
func (h *health) askAPI(ctx context.Context, port int) string {
	if port == 0 || !h.address.IsValid() {
		return ""
	}
	err := h.askHealth(ctx, "https://"+h.host(port)+"/readyz")
	if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		h.served.Store(err == nil)
		h.unready.Store(0)
	}
	answered := new(answerError)
	if errors.As(err, &answered) && h.unreadyFor() >= unreadyMost {
		h.served.Store(false)
	}
	if err == nil || h.served.Load() { // a concurrent request may have found it gone meanwhile
		return keeper.OK
	}
	return err.Error()
}

// unreadyFor returns for how long the API server has been not ready, including now.
func (h *health) unreadyFor() time.Duration {
	now := time.Now()
	h.unready.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, h.unready.Load()))
}

// host returns host:port for a port of the guest.
func (h *health) host(port int) string {
	return net.JoinHostPort(h.address.String(), strconv.Itoa(port))
}

func (h *health) askHealth(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := h.client.Do(request)
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
