package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

const (
	debugAddress = "http://127.0.0.1:6060"
	// headerTimeout is how long a client may take to ask.
	headerTimeout = 10 * time.Second
	// closeTimeout is how long requests in flight may take when the operator stops.
	closeTimeout = 3 * time.Second
)

// addServers lets the manager run the HTTP servers.
func addServers(m manager.Manager, c Config) error {
	handlers := map[string]http.Handler{}
	if c.ListenAddress != "" {
		handlers[c.ListenAddress] = mainHandler(m)
	}
	if c.MetricsAddress != "" && c.MetricsAddress != c.ListenAddress {
		handlers[c.MetricsAddress] = metricsHandler()
	}
	if c.Debug {
		handlers[debugAddress] = debugHandler()
	}
	for address, handler := range handlers {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			return microerror.Maskf(invalidAddressError, "%q is not an address like http://127.0.0.1:8000", address)
		}
		if c.LogAccess {
			handler = logged(handler)
		}
		if err := m.Add(&server{address: u.Host, handler: handler, certFile: c.CertFile, keyFile: c.KeyFile}); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

var invalidAddressError = &microerror.Error{Kind: "invalidAddressError"}

func mainHandler(m manager.Manager) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(`[{"description":"Ensure service availability.","failed":false,"message":"Service up.","name":"service"}]`))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			http.Error(w, "caches are not filled yet: the API server was not reached or a CustomResourceDefinition is missing", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /{$}", answer(`{"description":"`+project.Description+`","git_commit":"`+project.Commit()+`","name":"`+project.Name+
		`","source":"`+project.Source+`","version":"`+project.Version()+`"}`))
	mux.Handle("GET /metrics", metricsHandler())
	return mux
}

func metricsHandler() http.Handler {
	return promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{})
}

func debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body)) // the client has gone; there is nobody to tell
	}
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.FromContext(r.Context()).Info("request", "method", r.Method, "path", r.URL.Path)
		next.ServeHTTP(w, r)
	})
}

// server is one HTTP server, run by the manager.
type server struct {
	address, certFile, keyFile string
	handler                    http.Handler
}

// NeedLeaderElection is false: a replica that waits is asked for its health too.
func (s *server) NeedLeaderElection() bool { return false }

// Start serves until the context ends.
func (s *server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return microerror.Mask(err)
	}
	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: headerTimeout}
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = srv.Shutdown(closing) // what is not served by now is cut off by the end of the process
	}()
	if s.certFile != "" {
		err = srv.ServeTLS(listener, s.certFile, s.keyFile)
	} else {
		err = srv.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return microerror.Mask(err)
}
