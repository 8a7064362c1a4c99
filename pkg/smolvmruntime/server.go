package smolvmruntime

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// Identity is the answer to GET /api/v1/identity.
type Identity struct {
	NodeName string `json:"nodeName"`
	// NodeUID is absent until the Node has been read.
	NodeUID string `json:"nodeUID,omitempty"`
}

// Capabilities is the answer to GET /api/v1/capabilities.
type Capabilities struct {
	RuntimeVersion  string `json:"runtimeVersion"`
	ProtocolVersion string `json:"protocolVersion"`
	CPUs            int32  `json:"cpus"`
	MemoryMiB       int64  `json:"memoryMiB"`
	StorageGiB      int64  `json:"storageGiB"`
	KVMAvailable    bool   `json:"kvmAvailable"`

	// The following are additions, see SmolVMNodeStatus.
	Backend     string   `json:"backend,omitempty"`
	Accelerator string   `json:"accelerator,omitempty"`
	Features    []string `json:"features,omitempty"`
}

// told is what the node API says of the node.
type told struct {
	health       Health
	identity     Identity
	capabilities Capabilities
}

const (
	codeMethodNotAllowed api.Code = "METHOD_NOT_ALLOWED"

	pathLive, pathHealth           = "/livez", "/healthz"
	pathIdentity, pathCapabilities = "/api/v1/identity", "/api/v1/capabilities"
	patternOther                   = "other"
)

// nodeAPI is the handler of what a controller may ask of a node.
type nodeAPI struct {
	auth  authenticator
	proxy *proxy
	// guests says that clients may have streams of what guests write.
	guests bool
	log    *slog.Logger
	// count counts a request.
	count func(method, pattern string, status int)
	told  atomic.Pointer[told]
	// complaints bounds how often the log says that tokens cannot be checked: strangers can cause that.
	complaints rate.Sometimes
	// draining is set when machines are powered down permanently.
	draining atomic.Bool
}

// ServeHTTP implements http.Handler.
func (n *nodeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := &recorder{ResponseWriter: w, status: http.StatusOK}
	pattern := patternOther
	defer func() { n.count(r.Method, pattern, recorded.status) }()
	header := recorded.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	path := r.URL.EscapedPath()
	defer dropRest(recorded, r)
	if path == pathLive || path == pathHealth {
		pattern = path
		header.Set("Connection", "close")
		n.serveHealth(recorded, r)
		return
	}
	if !n.admit(recorded, r) {
		return
	}
	if path == pathIdentity || path == pathCapabilities {
		pattern = path
		n.serveFacts(recorded, r)
		return
	}
	t, what, allowed := match(r.Method, r.URL, n.guests)
	switch what {
	case foundRoute:
		pattern = t.route.pattern()
		n.pass(recorded, r, t)
	case foundOtherMethods:
		refuseMethod(recorded, r, allowed)
	case foundNoName:
		fail(recorded, api.Errorf(api.CodeBadRequest, "the path has no name of a machine"))
	default:
		// It has no code, so that it does not mean that a machine is missing.
		fail(recorded, &api.Error{HTTPStatus: http.StatusNotFound, Message: "there is no such path"})
	}
}

// dropRest bounds how long package http waits for what a client has not sent of a body: it reads that before it closes the
// connection or takes another request.
func dropRest(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime))
	}
}

// admit answers clients without a right, who keep no connection.
func (n *nodeAPI) admit(w http.ResponseWriter, r *http.Request) bool {
	token := bearer(r.Header)
	ok, err := n.auth.Authenticate(withClient(r.Context(), sourceOf(r.RemoteAddr)), token)
	switch {
	case ok:
		return true
	case err != nil && token != "":
		w.Header().Set("Connection", "close")
		n.complaints.Do(func() { n.log.Error("A client cannot be authenticated", "client", r.RemoteAddr, "error", err) })
		fail(w, api.Errorf(api.CodeUnavailable, "the token cannot be checked for the time being"))
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Connection", "close")
		fail(w, api.Errorf(api.CodeUnauthorized, "unauthorized"))
	}
	return false
}

func (n *nodeAPI) pass(w http.ResponseWriter, r *http.Request, t target) {
	if n.draining.Load() && r.Method != http.MethodGet {
		fail(w, api.Errorf(api.CodeUnavailable, "the runtime is being removed, and the machines are powered down"))
		return
	}
	n.proxy.Pass(w, r, t)
}

func (n *nodeAPI) serveHealth(w http.ResponseWriter, r *http.Request) {
	if !isRead(w, r) {
		return
	}
	known := n.told.Load()
	switch {
	case r.URL.Path == pathLive:
		write(w, http.StatusOK, map[string]string{"status": "ok"})
	case known == nil:
		write(w, http.StatusServiceUnavailable, Health{Message: "the runtime starts"})
	case !known.health.OK:
		write(w, http.StatusServiceUnavailable, known.health)
	default:
		write(w, http.StatusOK, known.health)
	}
}

func (n *nodeAPI) serveFacts(w http.ResponseWriter, r *http.Request) {
	if !isRead(w, r) {
		return
	}
	known := n.told.Load()
	switch {
	case known == nil:
		fail(w, api.Errorf(api.CodeUnavailable, "the runtime starts"))
	case r.URL.Path == pathIdentity:
		write(w, http.StatusOK, known.identity)
	default:
		write(w, http.StatusOK, known.capabilities)
	}
}

// isRead answers requests that are none of reading.
func isRead(w http.ResponseWriter, r *http.Request) bool {
	read := []string{http.MethodGet, http.MethodHead}
	if slices.Contains(read, r.Method) {
		return true
	}
	refuseMethod(w, r, read)
	return false
}

func refuseMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	fail(w, &api.Error{Code: codeMethodNotAllowed, HTTPStatus: http.StatusMethodNotAllowed, Message: fmt.Sprintf("the method %.20q is not for this path", r.Method)})
}

func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set(typeHeader, "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func fail(w http.ResponseWriter, err error) {
	told := api.ErrorOf(err)
	write(w, told.Status(), told)
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

const (
	// headerTime bounds how long a client takes for a handshake and a header.
	headerTime = 5 * time.Second
	// restTime bounds how long a client takes for the rest of a body that is not wanted.
	restTime = 2 * time.Second
	// idleTime is how long a connection is kept for another request. With HTTP/2, it may be that of a client without a token.
	idleTime = 90 * time.Second
	// graceTime bounds how long requests that are under way may take when the agent ends.
	graceTime = 5 * time.Second
	maxHeader = 64 << 10
)

// serve serves a handler until the context ends, and cuts off what takes longer than graceTime after that. Without a
// configuration for TLS it serves plain HTTP. A handler that takes longer than bodyTime removes the deadline for reading.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, secure *tls.Config, log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: handler, TLSConfig: secure, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
		// Scans of ports are no errors.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if secure == nil {
			ended <- server.Serve(listener)
			return
		}
		ended <- server.ServeTLS(listener, "", "")
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer stop()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		cancel()
		err = server.Close()
	}
	return err
}

// secure returns how the node API speaks TLS.
func secure(i *identity) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: i.Serve}
}
