package workload

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// mostDecoded is how many bytes of memory the responses of all clusters together may take while they are decoded.
	// No holder of a share waits for a network, so that no cluster can keep the others from theirs.
	mostDecoded = 32 << 20
	// largestDecoded bounds what one response, or one event of a watch, takes once it is decoded.
	largestDecoded = 12 << 20
	// largestAnswer bounds one response as it is sent, and largestFrame one event of a watch: etcd accepts objects of
	// 1.5 MiB, and the response with one is slightly larger.
	largestAnswer, largestFrame = 4 << 20, 1600 << 10
	// mostReading is how many bytes of incomplete responses are kept for one cluster, in addition to smallPart of each.
	mostReading = 8 << 20
	// smallPart is how much of a response is read without a reservation.
	smallPart = 64 << 10
	// largestRefusal bounds what is read of an error response.
	largestRefusal = 64 << 10
	// largestHeader bounds the headers of a response.
	largestHeader = 64 << 10
	// unreadOfStream and unreadOfConnection are how many bytes a server may send before they are read: net/http would
	// accept 4 MiB per request and 1 GiB per connection.
	unreadOfStream, unreadOfConnection = 128 << 10, 4 << 20
)

// decoding is the budget for decoding of the whole process.
var decoding = semaphore.NewWeighted(mostDecoded)

// errTooLarge says that one response is too large. A smaller page may be small enough.
var errTooLarge = fmt.Errorf("%w at once", errResponseTooLarge)

// grant is a share of the budget for what is being decoded. The decoder returns it once.
type grant struct {
	mu    sync.Mutex
	bytes int64
}

type grantKey struct{}

// granted returns a context whose reads count against one grant until the returned function is called, because bodies
// are closed before they are decoded.
func granted(ctx context.Context) (context.Context, func()) {
	g := &grant{}
	return context.WithValue(ctx, grantKey{}, g), g.giveBack
}

// grantOf returns the grant of the context, or a new one.
func grantOf(ctx context.Context) (g *grant, shared bool) {
	g, shared = ctx.Value(grantKey{}).(*grant)
	if !shared {
		g = &grant{}
	}
	return g, shared
}

// take waits until that many bytes may be decoded.
func (g *grant) take(ctx context.Context, bytes int64) error {
	if err := decoding.Acquire(ctx, bytes); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes += bytes
	return nil
}

func (g *grant) giveBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	decoding.Release(g.bytes)
	g.bytes = 0
}
