package runner

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
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
)

// askMachine is QEMU's own word on the machine, and whether it gave one.
func askMachine(ctx context.Context, monitor *qmp.Client) (string, bool) {
	status, err := monitor.Status(ctx)
	if err != nil {
		return err.Error(), false
	}
	return status.Status, true
}

// healthClient opens one connection a question: a guest that was rebooted forgets the old ones without a word. It believes any
// certificate, as kubelets do when they probe: the answer is one word, and nothing is told to whoever gives it.
var healthClient = &http.Client{
	Timeout: healthTimeout,
	Transport: &http.Transport{
		DisableKeepAlives: true, Proxy: nil, DialContext: (&net.Dialer{Timeout: healthTimeout}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// askKubelet and askAPI ask the guest's kubelet and API server for their health through the guest's address. Without a port they
// ask nobody and say nothing.
func askKubelet(ctx context.Context, address netip.Addr, port int) string {
	return askHealth(ctx, "http", address, port, "/healthz")
}

func askAPI(ctx context.Context, address netip.Addr, port int) string {
	return askHealth(ctx, "https", address, port, "/readyz")
}

func askHealth(ctx context.Context, scheme string, address netip.Addr, port int, path string) string {
	if port == 0 || !address.IsValid() {
		return ""
	}
	url := scheme + "://" + net.JoinHostPort(address.String(), strconv.Itoa(port)) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := healthClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 256))
	switch {
	case err != nil:
		return err.Error()
	case response.StatusCode != http.StatusOK:
		return fmt.Sprintf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return healthOK
}
