package workload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/wire"
)

const (
	// mostAtOnce is the burst in bytes that the caches of one cluster may read, and mostPerSecond the rate that they
	// may sustain: an attacker who owns a cluster may create, or let an API server send, an endless number of objects. The Nodes
	// of a cluster with several thousand Nodes fit.
	mostAtOnce, mostPerSecond = 64 << 20, 1 << 20
	// mostKept is how many bytes of memory the cached objects of one cluster may take, after they have been trimmed.
	mostKept = 10 << 20
	// mostTrimmed is how many bytes of trimmed objects caches may store at once. Initial objects count twice: once as
	// they arrive, before they are in the cache, and once as they are stored.
	mostTrimmed = 2 * mostKept
)

// errResponseTooLarge ends a session. The next session fails as well until there is less.
var errResponseTooLarge = errors.New("the cluster sends, or has, more than the operator reads of one cluster")

// newAllowance limits what may be read into the caches of one cluster, over all its connections.
func newAllowance() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostAtOnce) }

// newIntake limits what caches may store of one cluster after trimming, over all its connections.
func newIntake() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostTrimmed) }

// filling is the transport of caches over a link: it counts what they read.
type filling struct{ *link }

// RoundTrip implements http.RoundTripper. It requests lists in pages, because an API server would return a list from
// its own cache as a whole. Caches send list requests only where they cannot get a list by a watch.
func (f filling) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.link.RoundTrip(paged(request))
	if err == nil {
		response.Body = &metered{ReadCloser: response.Body, link: f.link}
	}
	return response, err
}

// fillsKey marks the context of list requests of caches.
type fillsKey struct{}

// paged makes a list request ask for a page.
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
	// All pages are kept until the last one has arrived.
	clone := request.Clone(context.WithValue(request.Context(), fillsKey{}, true))
	clone.URL.RawQuery = query.Encode()
	return clone
}

// metered is a body that is read only within the allowance of the cluster.
type metered struct {
	io.ReadCloser
	link *link
}

// Read fails if the allowance is exceeded, and the link's session ends.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if m.link.allowance.AllowN(time.Now(), n) && !errors.Is(err, errResponseTooLarge) {
		return n, err
	}
	m.link.noteWatches(0, errResponseTooLarge)
	return 0, errResponseTooLarge
}

// takeIn trims an object for the cache. If the cluster's limit is exceeded, the link's session ends.
func (l *link) takeIn(object any) (any, error) {
	trimmed, err := trim(object)
	if err != nil {
		return nil, err
	}
	if !l.intake.AllowN(time.Now(), int(wire.ObjectCost(trimmed))) {
		l.noteWatches(0, errResponseTooLarge)
		return nil, errResponseTooLarge
	}
	return trimmed, nil
}
