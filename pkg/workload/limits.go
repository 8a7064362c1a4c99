package workload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/kvm-operator/kvm-operator/pkg/wire"
)

const (
	// mostAtOnce is how many bytes the caches of one cluster read at once, and mostPerSecond for how long it likes: somebody who owns a cluster may
	// make objects, or an API server that sends some, without end. The Nodes of a cluster of some thousand fit.
	mostAtOnce, mostPerSecond = 64 << 20, 1 << 20
	// mostKept is how many bytes of memory the objects take that are kept of one cluster, after they have been trimmed.
	mostKept = 10 << 20
	// mostTrimmed is how many bytes of trimmed objects caches may take in at once. Those of the beginning are counted twice: once as they
	// come, when they are not among those that are kept yet, and once as they are kept.
	mostTrimmed = 2 * mostKept
)

// errTooMuch ends a session. The next one is no better before there is less.
var errTooMuch = errors.New("the cluster sends, or has, more than the operator reads of one cluster")

// newAllowance is what may be read into the caches of one cluster, however often it is connected to.
func newAllowance() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostAtOnce) }

// newIntake is what caches may take in of one cluster after it has been trimmed, however often it is connected to.
func newIntake() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostTrimmed) }

// filling is the way of caches through a link: what they read is counted.
type filling struct{ *link }

// RoundTrip is http.RoundTripper's. A list is asked for in pages: one that an API server answers from its own cache would come as a whole.
// Caches ask for lists only where they cannot have one by a watch.
func (f filling) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.link.RoundTrip(paged(request))
	if err == nil {
		response.Body = &metered{ReadCloser: response.Body, link: f.link}
	}
	return response, err
}

// fillsKey marks the context of lists that caches ask for.
type fillsKey struct{}

// paged has a list be asked for in pages.
func paged(request *http.Request) *http.Request {
	query := request.URL.Query()
	if request.Method != http.MethodGet || query.Get("watch") == "true" {
		return request
	}
	query.Set("limit", strconv.Itoa(pageSize))
	if query.Get("resourceVersion") == "0" {
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	// All pages are kept until the last has come.
	clone := request.Clone(context.WithValue(request.Context(), fillsKey{}, true))
	clone.URL.RawQuery = query.Encode()
	return clone
}

// metered is a body of which no more is read than is allowed of the cluster.
type metered struct {
	io.ReadCloser
	link *link
}

// Read fails when that was too much, and what the link is for ends.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if m.link.allowance.AllowN(time.Now(), n) && !errors.Is(err, errTooMuch) {
		return n, err
	}
	m.link.noteWatches(0, errTooMuch)
	return 0, errTooMuch
}

// takeIn trims an object for the cache. More than is allowed of the cluster ends what the link is for.
func (l *link) takeIn(object any) (any, error) {
	trimmed, err := trim(object)
	if err != nil {
		return nil, err
	}
	if !l.intake.AllowN(time.Now(), int(wire.ObjectCost(trimmed))) {
		l.noteWatches(0, errTooMuch)
		return nil, errTooMuch
	}
	return trimmed, nil
}
