package workload

import (
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

const (
	// mostAtOnce is how many bytes the caches of one cluster read at once, and mostPerSecond for how long it likes: somebody who owns a cluster may
	// make objects, or an API server that sends some, without end. The Nodes of a cluster of some thousand fit.
	mostAtOnce, mostPerSecond = 64 << 20, 1 << 20
	// mostKept is how many bytes of objects are kept of one cluster, as they are sent and after they have been trimmed.
	mostKept = 32 << 20
	// largestAnswer bounds what is read of one answer that nobody keeps.
	largestAnswer = 64 << 20
	// largestRefusal bounds what is read of the answer to a watch that is none.
	largestRefusal = 1 << 20
)

// errTooMuch ends a session. The next one is no better before there is less.
var errTooMuch = errors.New("the cluster sends, or has, more than the operator reads of one cluster")

// newAllowance is what may be read into the caches of one cluster, however often it is connected to.
func newAllowance() *rate.Limiter { return rate.NewLimiter(mostPerSecond, mostAtOnce) }

// filling is the way of caches through a link: what they read is counted.
type filling struct{ *link }

// RoundTrip is http.RoundTripper's.
func (f filling) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := f.link.RoundTrip(request)
	if err == nil {
		response.Body = &metered{ReadCloser: response.Body, link: f.link}
	}
	return response, err
}

// metered is a body of which no more is read than is allowed of the cluster.
type metered struct {
	io.ReadCloser
	link *link
}

// Read fails when that was too much, and what the link is for ends.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if m.link.allowance.AllowN(time.Now(), n) {
		return n, err
	}
	m.link.noteWatches(0, errTooMuch)
	return 0, errTooMuch
}

// size is that of an object as it is sent; zero for what has none.
func size(object any) int64 {
	if sized, ok := object.(interface{ Size() int }); ok {
		return int64(sized.Size())
	}
	return 0
}
