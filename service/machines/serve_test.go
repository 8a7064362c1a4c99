package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const anyPort = "127.0.0.1:0"

// serve starts servers that end with the test.
func serve(t *testing.T, s Serving) *Servers {
	t.Helper()
	servers, err := Listen(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- servers.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the servers ended with %s", err)
		}
	})
	return servers
}

// ask returns the status and the body of an answer.
func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// expect checks the answer to a request: its status, and a part of its body.
func expect(t *testing.T, method, url string, status int, part string) {
	t.Helper()
	if got, body := ask(t, method, url); got != status || !strings.Contains(body, part) {
		t.Errorf("%s %s answers %d %q, want %d %q", method, url, got, body, status, part)
	}
}

func serving(why *atomic.Value) Serving {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "one", Help: "One."}, func() float64 { return 1 }))
	return Serving{Metrics: anyPort, Probes: "localhost:0", Gatherer: registry, Unready: func() string { return why.Load().(string) }}
}

func TestProbesAndMetricsAreServedAtTheirAddresses(t *testing.T) {
	var why atomic.Value
	why.Store("caches are not filled yet")
	s := serving(&why)
	servers := serve(t, s)
	probes, metrics := "http://"+servers.Address(s.Probes), "http://"+servers.Address(s.Metrics)
	expect(t, http.MethodGet, probes+"/healthz", http.StatusOK, "ok")
	expect(t, http.MethodGet, probes+"/readyz", http.StatusInternalServerError, "caches are not filled yet")
	why.Store("")
	expect(t, http.MethodGet, probes+"/readyz", http.StatusOK, "ok")
	expect(t, http.MethodHead, probes+"/readyz", http.StatusOK, "")
	expect(t, http.MethodGet, metrics+"/metrics", http.StatusOK, "one 1")
	expect(t, http.MethodPost, metrics+"/metrics", http.StatusMethodNotAllowed, "")
	expect(t, http.MethodGet, probes+"/metrics", http.StatusNotFound, "")
	expect(t, http.MethodGet, metrics+"/healthz", http.StatusNotFound, "")
}

func TestOneAddressServesAll(t *testing.T) {
	var why atomic.Value
	why.Store("")
	s := serving(&why)
	s.Probes = s.Metrics
	at := "http://" + serve(t, s).Address(s.Metrics)
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		expect(t, http.MethodGet, at+path, http.StatusOK, "")
	}
}

func TestWhatIsSwitchedOffIsNotServed(t *testing.T) {
	servers := serve(t, Serving{Metrics: NotServed, Probes: ""})
	if len(servers.servers) != 0 {
		t.Errorf("there are servers at %v", servers.servers)
	}
}

func TestAMetricThatFailsLeavesTheOthers(t *testing.T) {
	var why atomic.Value
	why.Store("")
	s := serving(&why)
	broken := prometheus.NewRegistry()
	broken.MustRegister(invalid{})
	s.Gatherer = prometheus.Gatherers{broken, s.Gatherer}
	expect(t, http.MethodGet, "http://"+serve(t, s).Address(s.Metrics)+"/metrics", http.StatusOK, "one 1")
}

type invalid struct{}

func (invalid) Describe(chan<- *prometheus.Desc) {}
func (invalid) Collect(found chan<- prometheus.Metric) {
	found <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "Broken.", nil, nil), errors.New("no cache"))
}

// TestAPortInUseEndsTheOperatorAtOnce: the other port is closed again.
func TestAPortInUseEndsTheOperatorAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	other := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Listen(Serving{Metrics: taken.Addr().String(), Probes: other})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("the error is %v", err)
	}
	again, err := net.Listen("tcp", other)
	if err != nil {
		t.Fatal(fmt.Errorf("the other port is still open: %w", err))
	}
	defer again.Close()
}
