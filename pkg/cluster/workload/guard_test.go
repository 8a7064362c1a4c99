package workload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
)

// guarded returns a guard whose parts come from next and take as much memory as their length.
func guarded(next func() ([]byte, error)) *guard {
	g := &guard{ReadCloser: http.NoBody, reading: semaphore.NewWeighted(mostReading), grant: &grant{}, next: next}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.cost = func(part []byte) (int64, error) { return int64(len(part)), nil }
	return g
}

// takeAll takes the budget for decoding, which the process shares with what other tests have left, or fails the test.
func takeAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := decoding.Acquire(ctx, mostDecoded); err != nil {
		t.Fatal("a part of the budget for decoding stays taken")
	}
}

// allReturned fails the test unless both budgets are free again.
func allReturned(t *testing.T, g *guard) {
	t.Helper()
	if !g.reading.TryAcquire(mostReading) {
		t.Fatal("a part of the budget for reading stays reserved")
	}
	takeAll(t)
	decoding.Release(mostDecoded)
}

// TestCloseDuringRead closes a guard in the middle of a Read, as StreamWatcher.Stop does: at the part's arrival, and
// at any time.
func TestCloseDuringRead(t *testing.T) {
	t.Run("while a part arrives", func(t *testing.T) {
		var g *guard
		g = guarded(func() ([]byte, error) {
			if err := g.reserve(smallPart); err != nil {
				return nil, err
			}
			_ = g.Close()
			return make([]byte, smallPart), nil
		})
		if n, err := g.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("a closed body reads %d bytes, error %v", n, err)
		}
		allReturned(t, g)
	})
	t.Run("while a part waits for memory", func(t *testing.T) {
		takeAll(t)
		read := make(chan error)
		g := guarded(func() ([]byte, error) { return make([]byte, smallPart), nil })
		go func() {
			_, err := g.Read(make([]byte, 1))
			read <- err
		}()
		_ = g.Close()
		if err := <-read; !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Fatalf("the read ends with %v", err)
		}
		decoding.Release(mostDecoded)
		allReturned(t, g)
	})
	t.Run("at any time", func(t *testing.T) {
		for range 2000 {
			g := guarded(func() ([]byte, error) { return make([]byte, 512), nil })
			var reader sync.WaitGroup
			reader.Go(func() { _, _ = io.Copy(struct{ io.Writer }{io.Discard}, onlyReader{g}) })
			_ = g.Close()
			reader.Wait()
			allReturned(t, g)
		}
	})
}

// onlyReader reads in small steps.
type onlyReader struct{ io.Reader }

func (r onlyReader) Read(p []byte) (int, error) { return r.Reader.Read(p[:8]) }
