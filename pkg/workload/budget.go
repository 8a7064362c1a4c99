package workload

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// mostDecoded is how many bytes of memory answers of all clusters may take while they are decoded. Nothing waits for a network
	// while it holds a part of it, so no cluster can keep the others from theirs.
	mostDecoded = 32 << 20
	// largestDecoded bounds what one answer, or one event of a watch, takes once it is decoded.
	largestDecoded = 12 << 20
	// largestAnswer bounds one answer as it is sent, and largestFrame one event of a watch: etcd takes objects of 1.5 MiB, and the answer
	// that has one has a little more.
	largestAnswer, largestFrame = 4 << 20, 1600 << 10
	// mostReading is how many bytes of answers that have not come whole are kept of one cluster, besides smallPart of each.
	mostReading = 8 << 20
	// smallPart is what is read without asking.
	smallPart = 64 << 10
	// largestRefusal bounds what is read of an answer that is none.
	largestRefusal = 64 << 10
	// largestHeader bounds the headers of an answer.
	largestHeader = 64 << 10
	// unreadOfStream and unreadOfConnection are how many bytes a server may send that have not been asked for: net/http would take 4 MiB
	// for each request and 1 GiB for a connection.
	unreadOfStream, unreadOfConnection = 128 << 10, 4 << 20
)

// decoding is what may be decoded now, in the whole process.
var decoding = semaphore.NewWeighted(mostDecoded)

// errTooLarge is for one answer that is too large. Fewer objects at once may be small enough.
var errTooLarge = fmt.Errorf("%w at once", errTooMuch)

// grant is a part of the budget for what is being decoded. Who decodes gives it back, once.
type grant struct {
	mu    sync.Mutex
	bytes int64
}

type grantKey struct{}

// granted has what is asked for with the context be counted until the function that it returns is called: bodies are closed before they are
// decoded.
func granted(ctx context.Context) (context.Context, func()) {
	g := &grant{}
	return context.WithValue(ctx, grantKey{}, g), g.giveBack
}

// grantOf is that of who waits for the answer, or one of its own.
func grantOf(ctx context.Context) (g *grant, shared bool) {
	g, shared = ctx.Value(grantKey{}).(*grant)
	if !shared {
		g = &grant{}
	}
	return g, shared
}

// take waits until so many bytes may be decoded.
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
