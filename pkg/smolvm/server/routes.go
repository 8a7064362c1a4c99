package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// params are the variable parts of a path, decoded.
type params struct {
	// name is a machine's.
	name string
	// path is that of a guest's file. It is absolute.
	path string
}

// parameter is one of the query.
type parameter struct{ name, kind, description string }

// route is what a path and a method do. All but serve and stream is for the API's description.
type route struct {
	method string
	// pattern has {name} for a segment and {path...} for all that remain.
	pattern string
	// stream says that the answer takes as long as it takes; watchable, that it does so for watch=true.
	stream, watchable bool

	serve   func(*server, http.ResponseWriter, *http.Request, params) error
	summary string
	query   []parameter
	// request and answer are values of the types of the JSON; or the media type is given, for what is none.
	request, answer         any
	requestType, answerType string
	// optional says that there need be no request.
	optional bool
}

const (
	ofMachines = "/api/v1/machines"
	ofMachine  = ofMachines + "/{name}"
)

// routes returns the routes. A path that is not here is answered 404 with nothing, as smolvm answers.
func routes() []route {
	return []route{
		{method: http.MethodGet, pattern: "/health", serve: (*server).health, answer: api.Health{}, summary: "Get the health of the server"},
		{method: http.MethodGet, pattern: "/readyz", serve: (*server).ready, answer: api.Status{}, summary: "Get the readiness of the server"},
		{method: http.MethodGet, pattern: "/capacity", serve: (*server).capacity, answer: api.Capacity{}, summary: "Get what is allocated to machines and what they use"},
		{method: http.MethodGet, pattern: "/metrics", serve: (*server).serveMetrics, answerType: typeText, summary: "Get metrics for Prometheus"},
		{method: http.MethodGet, pattern: "/api-docs/openapi.json", serve: (*server).describe, answerType: typeJSON, summary: "Describe the API"},
		{method: http.MethodPost, pattern: "/drain", serve: (*server).drain, answer: api.Status{}, summary: "Stop all machines"},

		{method: http.MethodGet, pattern: ofMachines, watchable: true, serve: (*server).list, answer: api.Machines{}, summary: "List machines, or watch them",
			query: []parameter{{"watch", typeOfBoolean, "Addition: answer with lines of JSON, WatchEvent, until the client goes"}}},
		{method: http.MethodPost, pattern: ofMachines, serve: (*server).create, request: api.CreateRequest{}, answer: api.Machine{}, summary: "Create a machine"},
		{method: http.MethodGet, pattern: ofMachine, serve: (*server).get, answer: api.Machine{}, summary: "Get a machine"},
		{method: http.MethodDelete, pattern: ofMachine, serve: (*server).delete, answer: api.Deleted{}, summary: "Delete a machine with its disks"},
		{method: http.MethodPost, pattern: ofMachine + "/start", serve: (*server).start, request: api.StartRequest{}, optional: true, answer: api.Machine{}, summary: "Start a machine"},
		{method: http.MethodPost, pattern: ofMachine + "/stop", serve: (*server).stop, answer: api.Machine{}, summary: "Stop a machine"},
		{method: http.MethodPost, pattern: ofMachine + "/resize", serve: (*server).resize, request: api.ResizeRequest{}, answer: api.Machine{}, summary: "Grow the disks of a stopped machine"},
		{method: http.MethodPost, pattern: ofMachine + "/exec", serve: (*server).exec, request: api.ExecRequest{}, answer: api.ExecResponse{}, summary: "Run a command in the guest"},
		{method: http.MethodPost, pattern: ofMachine + "/exec/stream", stream: true, serve: (*server).execStream, request: api.ExecRequest{}, answerType: typeEvents,
			summary: "Run a command in the guest; events stdout, stderr, exit (ExecExit) and error (StreamError)"},
		{method: http.MethodGet, pattern: ofMachine + "/logs", stream: true, serve: (*server).logs, answerType: typeEvents, summary: "Read the console; an event for each line",
			query: []parameter{
				{"tail", typeOfInteger, "How many of the last lines, at most 10000"},
				{"follow", typeOfBoolean, "Follow the console"},
				{"format", typeOfString, "json leaves out lines that are not JSON"},
			}},
		{method: http.MethodGet, pattern: ofMachine + "/files/{path...}", serve: (*server).readFile, answerType: typeBytes, summary: "Read a file of the guest"},
		{method: http.MethodPut, pattern: ofMachine + "/files/{path...}", serve: (*server).writeFile, requestType: typeBytes, answer: api.FileWritten{}, summary: "Write a file of the guest"},
		{method: http.MethodGet, pattern: ofMachine + "/egress-events", serve: (*server).egressEvents, answer: api.EgressEvents{}, summary: "List connections of the guest that were refused",
			query: []parameter{{"limit", typeOfInteger, "How many of the last ones; 200 by default"}}},
	}
}

// match returns the route of a request and the variable parts of its path. If the path has routes and the method has
// none, it returns the methods that have one. Paths are not cleaned: //, . and .. are segments as others.
func match(routes []route, r *http.Request) (found *route, p params, allowed []string) {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i := range routes {
		candidate := &routes[i]
		got, ok := bind(candidate.pattern, segments)
		if !ok {
			continue
		}
		if candidate.allows(r.Method) {
			return candidate, got, nil
		}
		allowed = append(allowed, candidate.method)
		if candidate.allows(http.MethodHead) {
			allowed = append(allowed, http.MethodHead)
		}
	}
	return nil, params{}, allowed
}

// allows reports whether a route is for a method. GET is for HEAD, too, unless it may not end.
func (r *route) allows(method string) bool {
	return method == r.method || method == http.MethodHead && r.method == http.MethodGet && !r.stream
}

// streams reports whether the answer to a request takes as long as it takes.
func (r *route) streams(request *http.Request) bool {
	return r.stream || r.watchable && isWatch(request)
}

// isWatch reports whether a request asks for changes.
func isWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true"
}

// bind compares the segments of a path with a pattern.
func bind(pattern string, segments []string) (p params, ok bool) {
	wanted := strings.Split(pattern, "/")
	for i, want := range wanted {
		if i >= len(segments) {
			return params{}, false
		}
		got, err := url.PathUnescape(segments[i])
		switch {
		case err != nil:
			return params{}, false
		case want == "{path...}":
			rest, err := url.PathUnescape(strings.Join(segments[i:], "/"))
			p.path = "/" + rest
			return p, err == nil && rest != ""
		case want == "{name}" && got != "":
			p.name = got
		case want != got:
			return params{}, false
		}
	}
	return p, len(segments) == len(wanted)
}
