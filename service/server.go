package service

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

const (
	debugAddress = "http://127.0.0.1:6060"
	// headerTimeout is how long a client may take to send the header of a request.
	headerTimeout = 10 * time.Second
	// closeTimeout is how long requests in flight may take when the operator stops.
	closeTimeout = 3 * time.Second
)

// addServers makes the manager run the HTTP servers.
func (s *Service) addServers(c Config) error {
	handlers := map[string]http.Handler{}
	if c.ListenAddress != "" {
		handlers[c.ListenAddress] = s.mainHandler()
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
		// Servers of this type are started before the caches are filled, so that they can report what the operator
		// waits for.
		server := &manager.Server{
			Name: address, ShutdownTimeout: ptr.To(closeTimeout),
			Server: &http.Server{Addr: u.Host, Handler: handler, ReadHeaderTimeout: headerTimeout},
		}
		if err := s.manager.Add(server); err != nil {
			return microerror.Mask(err)
		}
		s.servers = append(s.servers, server)
	}
	s.certFile, s.keyFile = c.CertFile, c.KeyFile
	return nil
}

// listen opens the ports of the servers. If a port is in use the operator ends at once, instead of waiting until the
// caches are filled.
func (s *Service) listen() error {
	for _, server := range s.servers {
		listener, err := net.Listen("tcp", server.Server.Addr)
		if err != nil {
			return microerror.Mask(err)
		}
		if s.certFile != "" {
			pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
			if err != nil {
				return errors.Join(microerror.Mask(err), listener.Close())
			}
			listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		}
		server.Listener = listener
	}
	return nil
}

// hangUp closes the ports and the remaining connections. If the manager has ended in order, there is nothing to close.
func (s *Service) hangUp() {
	for _, server := range s.servers {
		_ = server.Server.Close()
		if server.Listener != nil {
			_ = server.Listener.Close()
		}
	}
}

var invalidAddressError = &microerror.Error{Kind: "invalidAddressError"}

func (s *Service) mainHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(`[{"description":"Ensure service availability.","failed":false,"message":"Service up.","name":"service"}]`))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.unready(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(s.standing() + "\n")) // it fails only if the client disconnected
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
		_, _ = w.Write([]byte(body)) // it fails only if the client disconnected
	}
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.FromContext(r.Context()).Info("request", "method", r.Method, "path", r.URL.Path)
		next.ServeHTTP(w, r)
	})
}
