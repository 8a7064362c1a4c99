package server

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// guard keeps web pages away, which can make a person's browser send requests to a server on the person's machine.
type guard struct {
	origins, hosts []string
	cross          *http.CrossOriginProtection
}

func newGuard(origins, hosts []string) *guard {
	g := &guard{origins: origins, hosts: hosts, cross: http.NewCrossOriginProtection()}
	for _, origin := range origins {
		// An origin that is none matches no page.
		_ = g.cross.AddTrustedOrigin(origin)
	}
	return g
}

// answers answers requests that go no further: those of web pages that may not use the API, and questions of browsers
// whether a page may.
func (g *guard) answers(w http.ResponseWriter, r *http.Request) bool {
	if !g.knowsHost(r) {
		writeJSON(w, http.StatusForbidden, api.Errorf(api.CodeForbidden, "the host %.100q of the request is not this server's", r.Host))
		return true
	}
	origin := r.Header.Get("Origin")
	known := origin != "" && slices.Contains(g.origins, origin)
	if known {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
	if known && r.Method == http.MethodOptions {
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
		w.Header().Set("Access-Control-Allow-Headers", contentType)
		w.WriteHeader(http.StatusOK)
		return true
	}
	// A stop or a drain has no body, so browsers send it without a question.
	if err := g.cross.Check(r); err != nil {
		writeJSON(w, http.StatusForbidden, api.Errorf(api.CodeForbidden, "web pages of other origins may not change machines"))
		return true
	}
	return false
}

// knowsHost reports whether a request was sent to this server's own name. A page whose name resolves to this host sends
// that name (DNS rebinding). A unix socket is out of a browser's reach.
func (g *guard) knowsHost(r *http.Request) bool {
	if _, tcp := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !tcp {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	// An address is not resolved, so it cannot be rebound.
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || slices.Contains(g.hosts, host)
}
