package smolvmruntime

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const ofMachines = "/api/v1/machines"

// route is what clients may ask of smolvm. All else stays in the node.
type route struct {
	method string
	// below is what comes after the name of a machine; machine is false for the collection, which has no name.
	machine bool
	below   string
	// query has the parameters that are passed on.
	query []string
	// body says that there may be one.
	body bool
	// streams says that the answer takes as long as it takes, for some queries if watchable.
	streams, watchable bool
	// guest says that the answer is a stream of what a guest writes. The controller needs none.
	guest bool
}

var machineRoutes = []route{
	{method: http.MethodGet, query: []string{"watch"}, watchable: true},
	{method: http.MethodPost, body: true},
	{method: http.MethodGet, machine: true},
	{method: http.MethodDelete, machine: true},
	{method: http.MethodPost, machine: true, below: "/start", body: true},
	{method: http.MethodPost, machine: true, below: "/stop"},
	{method: http.MethodPost, machine: true, below: "/resize", body: true},
	{method: http.MethodPost, machine: true, below: "/exec", body: true},
	{method: http.MethodPost, machine: true, below: "/exec/stream", body: true, streams: true, guest: true},
	{method: http.MethodGet, machine: true, below: "/logs", query: []string{"tail", "follow", "format"}, streams: true, guest: true},
	{method: http.MethodGet, machine: true, below: "/egress-events", query: []string{"limit"}},
}

// pattern returns the route's path, for metrics and logs.
func (r *route) pattern() string {
	if !r.machine {
		return ofMachines
	}
	return ofMachines + "/{name}" + r.below
}

// machineName is smolvm's rule without its finer points, which smolvm checks. What matters here: such a name is one segment
// of a path as it stands.
var machineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// target is a request as smolvm is to get it. It is made of parts that were checked: nothing of the client's path is copied.
type target struct {
	route *route
	path  string
	query url.Values
}

// streams reports whether the answer takes as long as it takes.
func (t *target) streams() bool {
	return t.route.streams || t.route.watchable && t.query.Get("watch") == "true"
}

// found says what a request is.
type found int

const (
	foundNothing found = iota
	foundRoute
	// foundOtherMethods: the path has routes, for other methods.
	foundOtherMethods
	// foundNoName: the path would be a machine's, if the name were one.
	foundNoName
)

// match returns what a request asks for. A path with an escape, a double slash or a dot is none of smolvm's: no name and no
// route needs one. Without guests, there are no routes to streams of guests.
func match(method string, u *url.URL, guests bool) (t target, what found, allowed []string) {
	name, below, ok := split(u.EscapedPath())
	if !ok {
		return target{}, foundNothing, nil
	}
	for i := range machineRoutes {
		r := &machineRoutes[i]
		switch {
		case r.machine != (name != "") || r.below != below || r.guest && !guests:
		case r.method == method:
			t = target{route: r}
		default:
			allowed = append(allowed, r.method)
		}
	}
	switch {
	case t.route == nil && len(allowed) == 0:
		return target{}, foundNothing, nil
	case name != "" && !machineName.MatchString(name):
		return target{}, foundNoName, nil
	case t.route == nil:
		return target{}, foundOtherMethods, slices.Compact(allowed)
	}
	t.path, t.query = ofMachines, pick(u.Query(), t.route.query)
	if name != "" {
		t.path += "/" + name + below
	}
	return t, foundRoute, nil
}

// split divides a path into the name of a machine and what is below it.
func split(path string) (name, below string, ok bool) {
	rest, ok := strings.CutPrefix(path, ofMachines)
	switch {
	case !ok:
		return "", "", false
	case rest == "":
		return "", "", true
	case rest[0] != '/' || rest == "/":
		return "", "", false
	}
	name, below, cut := strings.Cut(rest[1:], "/")
	if cut {
		below = "/" + below
	}
	return name, below, name != ""
}

// pick returns the parameters that are passed on, each once.
func pick(query url.Values, names []string) url.Values {
	picked := url.Values{}
	for _, name := range names {
		if query.Has(name) {
			picked.Set(name, query.Get(name))
		}
	}
	return picked
}
