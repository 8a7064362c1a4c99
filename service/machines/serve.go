// Package machines puts the operator for Machines together: manager, caches, controllers, metrics and health.
package machines

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Limits of the servers, which every pod of the cluster may reach.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	headerBytes    = 16 << 10
	// scrapesAtOnce is how many requests for metrics are answered at a time; others are asked to retry.
	scrapesAtOnce = 4
	// closeTimeout is how long requests in flight may take when the operator stops.
	closeTimeout = 3 * time.Second
)

// NotServed is an address at which nothing is served, as the empty one.
const NotServed = "0"

// Serving says what is served where.
type Serving struct {
	// Metrics is the address of /metrics, and Probes that of /healthz and /readyz, such as :8080. They may be the same.
	Metrics, Probes string
	// Certificate is what the address of metrics is served with, by TLS alone; nil for plain HTTP. Probes at the
	// same address would be served so, too, and the kubelet probes by plain HTTP.
	Certificate *certwatcher.CertWatcher
	// Logger has connections that fail at level debug, since every pod of the cluster may cause such lines.
	Logger logr.Logger
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// Unready returns why the operator is not ready; it is empty when the operator is ready.
	Unready func() string
}

// Servers are the HTTP servers of the operator, with open ports.
type Servers struct {
	servers     []*server
	certificate *certwatcher.CertWatcher
}

type server struct {
	address  string
	listener net.Listener
	http     *http.Server
}

// Listen opens the ports, so that a port in use ends the operator at once. They are served before the caches are filled:
// liveness does not depend on how long that takes, and readiness says what is missing.
func Listen(s Serving) (*Servers, error) {
	all := &Servers{certificate: s.Certificate}
	log := slog.NewLogLogger(logr.ToSlogHandler(s.Logger.V(1)), slog.LevelInfo)
	for address, handler := range s.handlers() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(microerror.Mask(err), all.close())
		}
		if s.Certificate != nil && address == s.Metrics {
			listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Certificate.GetCertificate})
		}
		all.servers = append(all.servers, &server{address, listener, &http.Server{
			Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes, ErrorLog: log,
		}})
	}
	return all, nil
}

// handlers returns what is served, by address.
func (s Serving) handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	at := func(address string) *http.ServeMux {
		mux, ok := handlers[address].(*http.ServeMux)
		if !ok {
			mux = http.NewServeMux()
			handlers[address] = mux
		}
		return mux
	}
	if isServed(s.Metrics) {
		at(s.Metrics).Handle("GET /metrics", promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce,
		}))
	}
	if isServed(s.Probes) {
		at(s.Probes).HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
		at(s.Probes).HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Unready()) })
	}
	return handlers
}

func isServed(address string) bool { return address != "" && address != NotServed }

// answer answers 200, or 500 with what is wrong.
func answer(w http.ResponseWriter, wrong string) {
	if wrong != "" {
		http.Error(w, wrong, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // it fails only if the client disconnected
}

// Address returns where the server of a configured address listens, with the port that a port 0 stands for; empty if there
// is no such server.
func (s *Servers) Address(configured string) string {
	for _, server := range s.servers {
		if server.address == configured {
			return server.listener.Addr().String()
		}
	}
	return ""
}

// Serve answers requests until the context ends, and returns when no request is in flight, or after some seconds. It fails
// if a server does, or if the files of the certificate cannot be watched: what is served would expire in silence.
func (s *Servers) Serve(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, len(s.servers)+1)
	if s.certificate != nil {
		go func() { failed <- s.certificate.Start(ctx) }()
	}
	for _, server := range s.servers {
		go func() { failed <- server.http.Serve(server.listener) }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, server := range s.servers {
		_ = server.http.Shutdown(ending) // close ends what is left then
	}
	return errors.Join(microerror.Mask(err), s.close())
}

// close closes the ports and all connections. Closing a port twice is no error.
func (s *Servers) close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.http.Close())
		if err := server.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return microerror.Mask(errors.Join(errs...))
}
