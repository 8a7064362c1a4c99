package workload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/wire"
)

// wholeTimeout is how long an event of a watch may take to arrive completely, once it has begun.
const wholeTimeout = 30 * time.Second

// errOtherFormat says that a response is in a format that was not requested.
var errOtherFormat = errors.New("the API server answers in a format that was not asked for")

// guard reads a response before it is decoded, and passes on only what can be decoded within the budget. As with every
// body of a response, Close may be called during Read: a watch is stopped that way.
type guard struct {
	io.ReadCloser
	ctx     context.Context // the request's context until the guard is closed
	cancel  context.CancelFunc
	scheme  *runtime.Scheme
	reading *semaphore.Weighted
	// next reads the next part that is decoded as a whole, and cost returns how much memory that takes.
	next func() ([]byte, error)
	cost func([]byte) (int64, error)

	grant  *grant
	shared bool
	// intake limits responses that a cache keeps before they are trimmed; nil for other responses.
	intake *rate.Limiter

	// mu guards what follows. It is not held while a part is loaded, because that waits for the network. Meanwhile
	// reserved and the grant belong to the load.
	mu      sync.Mutex
	loading bool
	pending []byte
	err     error
	// reserved is how much of reading is reserved.
	reserved int64
}

// guardAnswer guards a response with one object or list.
func (l *link) guardAnswer(request *http.Request, response *http.Response) {
	if response.StatusCode < 200 || response.StatusCode > 299 {
		refusal(response)
		return
	}
	kind := response.Header.Get("Content-Type")
	g := l.newGuard(request, response)
	g.next = g.answer
	if request.Context().Value(fillsKey{}) != nil {
		g.intake = l.intake
	}
	switch {
	case isProtobuf(kind):
		g.cost = func(data []byte) (int64, error) { return wire.Cost(l.scheme, data, largestDecoded) }
	case isJSON(kind) && !isProtobuf(request.Header.Get("Accept")):
		g.cost = func(data []byte) (int64, error) { return wire.JSONCost(data, largestDecoded) }
	default:
		g.cost = func([]byte) (int64, error) { return 0, otherFormat(kind) }
	}
	response.Body = g
}

// guardWatch guards the events of a watch.
func (l *link) guardWatch(request *http.Request, response *http.Response) {
	kind := response.Header.Get("Content-Type")
	g := l.newGuard(request, response)
	g.next = g.frame
	g.cost = func(frame []byte) (int64, error) { return wire.EventCost(l.scheme, frame[frameHead:], largestDecoded) }
	if !isProtobuf(kind) {
		g.next = g.anything
		g.cost = func([]byte) (int64, error) { return 0, otherFormat(kind) }
	}
	response.Body = g
}

func otherFormat(kind string) error { return fmt.Errorf("%w: %.64q", errOtherFormat, kind) }

// refusal bounds an error response, and declares it as text unless its format is read within bounds, because there are
// readers for YAML as well.
func refusal(response *http.Response) {
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, largestRefusal), response.Body}
	if kind := response.Header.Get("Content-Type"); !isProtobuf(kind) && !isJSON(kind) {
		response.Header.Set("Content-Type", "text/plain")
	}
}

func (l *link) newGuard(request *http.Request, response *http.Response) *guard {
	g := &guard{ReadCloser: response.Body, scheme: l.scheme, reading: l.reading}
	g.ctx, g.cancel = context.WithCancel(request.Context())
	g.grant, g.shared = grantOf(g.ctx)
	return g
}

// isProtobuf reports whether the first type of a header is protobuf.
func isProtobuf(header string) bool { return firstType(header) == runtime.ContentTypeProtobuf }

func isJSON(header string) bool { return firstType(header) == runtime.ContentTypeJSON }

func firstType(header string) string {
	first, _, _ := strings.Cut(header, ",")
	kind, _, err := mime.ParseMediaType(first)
	if err != nil {
		return ""
	}
	return kind
}

// Read passes on the part that was checked. A call for more means that the last part has been decoded.
func (g *guard) Read(p []byte) (int, error) {
	if g.beginLoad() {
		g.endLoad(g.load())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending) == 0 {
		return 0, g.err
	}
	n := copy(p, g.pending)
	g.pending = g.pending[n:]
	if len(g.pending) == 0 {
		g.unreserve()
	}
	return n, nil
}

// beginLoad reports whether the next part is due, and releases the last one.
func (g *guard) beginLoad() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending) > 0 || g.err != nil {
		return false
	}
	g.release()
	g.loading = true
	return true
}

// endLoad keeps the part, or releases it if the guard was closed meanwhile.
func (g *guard) endLoad(part []byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loading = false
	if g.err != nil {
		g.unreserve()
		g.release()
		return
	}
	g.pending, g.err = part, err
}

// Close closes the response, and ends a Read that waits.
func (g *guard) Close() error {
	g.mu.Lock()
	g.pending, g.err = nil, http.ErrBodyReadAfterClose
	if !g.loading {
		g.unreserve()
		g.release()
	}
	g.mu.Unlock()
	g.cancel()
	return g.ReadCloser.Close()
}

// load reads the next part and waits until it may be decoded.
func (g *guard) load() ([]byte, error) {
	part, err := g.next()
	if err != nil || len(part) == 0 {
		return nil, err
	}
	cost, err := g.cost(part)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		return nil, errTooLarge
	case err != nil:
		return nil, err
	case g.intake != nil && !g.intake.AllowN(time.Now(), int(cost)):
		return nil, errResponseTooLarge
	}
	ctx, cancel := context.WithTimeout(g.ctx, requestTimeout)
	defer cancel()
	// Readers keep the bytes, in buffers that double in size, in addition to what they decode from them.
	return part, g.grant.take(ctx, min(cost+2*int64(len(part)), mostDecoded))
}

// release returns what the last part cost, unless the caller that shares the grant does.
func (g *guard) release() {
	if !g.shared {
		g.grant.giveBack()
	}
}

// answer reads a complete response.
func (g *guard) answer() ([]byte, error) {
	var all bytes.Buffer
	n, err := io.CopyN(&all, g.ReadCloser, smallPart)
	if n < smallPart {
		if errors.Is(err, io.EOF) && n > 0 {
			return all.Bytes(), nil
		}
		return nil, err
	}
	if err := g.reserve(largestAnswer); err != nil {
		return nil, err
	}
	_, err = io.CopyN(&all, g.ReadCloser, largestAnswer-smallPart)
	switch {
	case errors.Is(err, io.EOF):
		return all.Bytes(), nil
	case err != nil:
		return nil, err
	}
	return nil, errTooLarge
}

// frameHead is how many bytes encode the length of an event.
const frameHead = 4

// frame reads an event of a watch with the length before it.
func (g *guard) frame() ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(g.ReadCloser, head[:]); err != nil {
		return nil, err
	}
	length := int64(binary.BigEndian.Uint32(head[:]))
	if length > largestFrame {
		return nil, errTooLarge
	}
	if length > smallPart {
		if err := g.reserve(length); err != nil {
			return nil, err
		}
	}
	late := time.AfterFunc(wholeTimeout, func() { _ = g.ReadCloser.Close() }) // the read below returns the error
	defer late.Stop()
	frame := make([]byte, frameHead+length)
	copy(frame, head[:])
	if _, err := io.ReadFull(g.ReadCloser, frame[frameHead:]); err != nil {
		return nil, err
	}
	return frame, nil
}

// anything reads the first byte of a response in an unknown format, because the response may be empty.
func (g *guard) anything() ([]byte, error) {
	var one [1]byte
	_, err := io.ReadFull(g.ReadCloser, one[:])
	return one[:], err
}

// reserve waits until there is room for that many bytes of responses of the cluster.
func (g *guard) reserve(bytes int64) error {
	if err := g.reading.Acquire(g.ctx, bytes); err != nil {
		return err
	}
	g.reserved = bytes
	return nil
}

func (g *guard) unreserve() {
	g.reading.Release(g.reserved)
	g.reserved = 0
}
