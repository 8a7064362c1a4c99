// Package server serves the HTTP API of smolvm, see package api, over machines of any kind. It answers as smolvm 1.9.3
// does, with the rejections of its framework axum, except where package api says that something is an addition.
//
// There is no authentication: a request may do what root may do to machines. The server is meant for a unix socket that
// only root can open. A client is trusted with machines, and not with the server's memory and time, which are bounded.
package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// Machines are the machines that are served. Errors are *api.Error in their chain, see api.ErrorOf; others are answered
// as api.CodeInternal. All methods may be called concurrently. When the context ends, they return soon.
type Machines interface {
	// List returns all machines.
	List(ctx context.Context) ([]api.Machine, error)
	// Get returns a machine.
	Get(ctx context.Context, name string) (api.Machine, error)
	// Create makes a machine and does not start it. The request has the types and required fields that it must have;
	// all else is to be checked.
	Create(ctx context.Context, r api.CreateRequest) (api.Machine, error)
	// Start starts the machine unless it runs.
	Start(ctx context.Context, name string, r api.StartRequest) (api.Machine, error)
	// Stop stops the machine unless it does not run.
	Stop(ctx context.Context, name string) (api.Machine, error)
	// Delete stops the machine and removes it.
	Delete(ctx context.Context, name string) error
	// Resize grows disks of a machine that does not run.
	Resize(ctx context.Context, name string, r api.ResizeRequest) (api.Machine, error)
	// Exec starts the machine if it does not run, and runs a command of at least one word. It writes to stdout and
	// stderr until it returns, maybe concurrently. An error of a writer ends the command.
	Exec(ctx context.Context, name string, r api.ExecRequest, stdout, stderr io.Writer) (exitCode int, err error)
	// Logs writes the console's last lines, and with follow what comes until ctx ends. Once it knows that there is a
	// console, it writes, if only zero bytes: the client learns then that there will be no error.
	Logs(ctx context.Context, name string, tail int, follow bool, out io.Writer) error
	// ReadFile writes a file of the guest, named by its absolute path. It starts the machine if it does not run.
	ReadFile(ctx context.Context, name, path string, out io.Writer) error
	// WriteFile makes a file of the guest, and its parents, and returns its size in bytes. It starts the machine if it
	// does not run. If in returns an error, as for a file that is too large, there is no new file.
	WriteFile(ctx context.Context, name, path string, in io.Reader) (int64, error)
	// EgressEvents returns the last connections that were refused, at most limit.
	EgressEvents(ctx context.Context, name string, limit int) ([]api.EgressEvent, error)
	// Capacity returns what machines have been given and use.
	Capacity(ctx context.Context) (api.Capacity, error)
	// Health says how the machines' host is. An error says that nothing can be done with machines.
	Health(ctx context.Context) (api.Health, error)
	// Drain stops all machines.
	Drain(ctx context.Context) error
}

// Options are what a server serves, and how.
type Options struct {
	// Machines are required.
	Machines Machines
	// Log gets errors that are not the client's. Nil: slog.Default.
	Log *slog.Logger
	// Version is that of the program, told in the API's description.
	Version string
	// Meters count what machines do. Nil: new ones.
	Meters *Meters
	// CORSOrigins are the origins of web pages that may use the API, such as http://localhost:3000. None by default.
	CORSOrigins []string
	// Hosts are names of this host that requests over TCP may be sent to, besides localhost and addresses. A web page
	// whose own name is made to resolve to this host is refused.
	Hosts []string
	// DrainTime bounds a drain. Zero: 25 seconds, as smolvm.
	DrainTime time.Duration
}

// limits are the bounds of a server.
type limits struct {
	request, drain, probe, alive, poll time.Duration
	// body, file and output are in bytes.
	body, file int64
	output     int
	// tail is in lines.
	tail, followers, watchers, egressEvents int
}

var usual = limits{
	request: 300 * time.Second, drain: 25 * time.Second, probe: 2 * time.Second,
	alive: api.WatchAliveSeconds * time.Second, poll: 2 * time.Second,
	body: 2 << 20, file: 100 << 20, output: 8 << 20,
	tail: api.MaxTail, followers: 16, watchers: 64, egressEvents: 10000,
}

// server is the handler.
type server struct {
	machines  Machines
	log       *slog.Logger
	limits    limits
	guard     *guard
	meters    *Meters
	metrics   http.Handler
	routes    []route
	document  []byte
	watch     *hub
	followers *counter
	requests  atomic.Uint32
}

// New returns a handler that serves machines.
func New(o Options) http.Handler {
	bounds := usual
	if o.DrainTime > 0 {
		bounds.drain = o.DrainTime
	}
	return newServer(o, bounds)
}

func newServer(o Options, bounds limits) *server {
	s := &server{
		machines: o.Machines, log: o.Log, limits: bounds, guard: newGuard(o.CORSOrigins, o.Hosts), meters: o.Meters,
		routes: routes(), document: OpenAPI(o.Version), watch: newHub(o.Machines.List, bounds), followers: newCounter(bounds.followers),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.meters == nil {
		s.meters = NewMeters()
	}
	s.metrics = s.meters.handler(o.Machines, bounds.probe)
	return s
}

// traceHeader is in every answer: a number of the request and one of the process.
const traceHeader = "X-Trace-Id"

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(traceHeader, traceID(s.requests.Add(1), os.Getpid()))
	// A client that does not read is given up. Streams move the deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.request + writePatience))
	recorded := &recorder{ResponseWriter: w, status: http.StatusOK}
	found, p, allowed := match(s.routes, r)
	defer func() { s.meters.count(r.Method, recorded.status, found) }()
	switch {
	case s.guard.answers(recorded, r):
	case found == nil && len(allowed) > 0:
		refuseMethod(recorded, allowed)
	case found == nil:
		recorded.WriteHeader(http.StatusNotFound)
	case found.streams(r):
		s.run(found, recorded, r, p)
	default:
		withinTime(s.limits.request, recorded, r, func(w http.ResponseWriter, r *http.Request) { s.run(found, w, r, p) })
	}
}

// run calls a route's function and answers with its error.
func (s *server) run(found *route, w http.ResponseWriter, r *http.Request, p params) {
	err := found.serve(s, w, r, p)
	if err == nil {
		return
	}
	if status := api.ErrorOf(err).Status(); status >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
		s.log.Error("A request to the API of machines ended with an error", "method", r.Method, "route", found.pattern,
			"machine", p.name, "trace", w.Header().Get(traceHeader), "error", err)
	}
	fail(w, r, err)
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
