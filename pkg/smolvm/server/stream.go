package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const typeEvents = "text/event-stream"

// stream is an answer that comes in parts: events, or lines of JSON. It begins with the first part, so that an error
// before that can be answered as one. While nothing comes, it sends keepalive, so that a client that is gone is noticed.
type stream struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	media     string
	keepalive []byte
	cancel    context.CancelCauseFunc
	done      chan struct{}

	mu    sync.Mutex
	begun bool
	err   error
	last  time.Time
}

// newStream returns a stream, which the caller closes, and the context of what it is about. That ends when the client is
// gone or does not read.
func newStream(w http.ResponseWriter, r *http.Request, media string, keepalive []byte, alive time.Duration) (*stream, context.Context) {
	ctx, cancel := context.WithCancelCause(r.Context())
	s := &stream{
		w: w, control: http.NewResponseController(w), media: media, keepalive: keepalive, cancel: cancel,
		done: make(chan struct{}), last: time.Now(),
	}
	go s.keepAlive(ctx, alive)
	return s, ctx
}

func (s *stream) keepAlive(ctx context.Context, every time.Duration) {
	defer close(s.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = s.send(s.keepalive)
		}
	}
}

// close ends the stream. The handler must not return before.
func (s *stream) close() {
	s.cancel(nil)
	<-s.done
}

// send begins the answer and sends a part, which may be empty.
func (s *stream) send(part []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.err = s.write(part)
	if s.err != nil {
		s.cancel(s.err)
	}
	return s.err
}

func (s *stream) write(part []byte) error {
	// The deadline is for a client that does not read.
	_ = s.control.SetWriteDeadline(time.Now().Add(writePatience))
	if !s.begun {
		s.begun = true
		s.w.Header().Set(contentType, s.media)
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err := s.w.Write(part); err != nil {
		return err
	}
	return s.control.Flush()
}

// hasBegun reports whether an error can no longer be answered as one.
func (s *stream) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// event sends an event whose data is JSON.
func (s *stream) event(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.send(api.AppendEvent(nil, api.Event{Name: name, Data: data}))
}

// end ends a stream of events with an error, or returns it if the stream has not begun.
func (s *stream) end(err error) error {
	if err == nil || !s.hasBegun() {
		return err
	}
	told := api.ErrorOf(err)
	_ = s.event(api.EventError, api.StreamError{Message: told.Message, Code: told.Code})
	return nil
}
