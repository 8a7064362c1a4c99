package agentwire

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// session is the guest's side of one.
type session struct {
	server *server
	done   chan struct{}
	ends   sync.Once

	mu       sync.Mutex
	requests map[uint64]*serving
}

// serving is a request in the guest.
type serving struct {
	cancel context.CancelCauseFunc
	in     *inbox
	out    map[stream]*outbox
}

func newSession(s *server) *session {
	return &session{server: s, done: make(chan struct{}), requests: map[uint64]*serving{}}
}

func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// end cancels all requests. There may be no session.
func (s *session) end(why error) {
	if s == nil {
		return
	}
	s.ends.Do(func() {
		close(s.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.requests {
			r.cancel(fmt.Errorf("%w: %w", ErrEnded, why))
		}
	})
}

// fail tells the host why the session ends, and ends it.
func (s *session) fail(why error) {
	if s == nil || s.ended() {
		return
	}
	s.server.spawn(func() {
		s.sendAndWait(frame{Kind: kindFail, Error: asError(why)})
		s.end(why)
	})
}

// send queues a frame.
func (s *session) send(f frame) error {
	text, err := encode(f)
	if err != nil {
		return err
	}
	select {
	case s.server.out <- outgoing{session: s, text: text}:
		return nil
	case <-s.done:
		return ErrEnded
	}
}

// sendAndWait queues a frame, and waits until it was written or that has taken too long.
func (s *session) sendAndWait(f frame) {
	text, err := encode(f)
	if err != nil {
		return
	}
	taken, late := make(chan struct{}), time.After(written)
	select {
	case s.server.out <- outgoing{session: s, text: text, taken: taken}:
	case <-s.done:
		return
	case <-late:
		return
	}
	select {
	case <-taken:
	case <-late:
	}
}

// receive takes in a frame of the host.
func (s *session) receive(f frame) error {
	switch f.Kind {
	case kindPing, kindExec, kindRead, kindWrite, kindShutdown:
		return s.serve(f)
	case kindData, kindCredit, kindCancel:
	default:
		return fmt.Errorf("%w: a frame %q", errProtocol, readable(string(f.Kind)))
	}
	s.mu.Lock()
	r := s.requests[f.ID]
	s.mu.Unlock()
	switch {
	case r == nil: // it has ended, which the host did not know yet
		return nil
	case f.Kind == kindCancel:
		r.cancel(errCancelled)
		return nil
	case f.Kind == kindData && r.in != nil:
		return r.in.put(f.Data, f.Last)
	case f.Kind == kindCredit && r.out[f.Stream] != nil:
		return r.out[f.Stream].add(f.Credit)
	}
	return fmt.Errorf("%w: %q is no part of request %d", errProtocol, readable(string(f.Kind)), f.ID)
}

// serve starts a request.
func (s *session) serve(f frame) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &serving{cancel: cancel, out: map[stream]*outbox{}}
	s.streams(r, f)
	s.mu.Lock()
	known, count := s.requests[f.ID] != nil, len(s.requests)
	if !known && count < MaxRequests {
		s.requests[f.ID] = r
	}
	s.mu.Unlock()
	if known || f.ID == 0 {
		cancel(nil)
		return fmt.Errorf("%w: request %d is there already", errProtocol, f.ID)
	}
	s.server.spawn(func() {
		defer cancel(nil)
		if count >= MaxRequests {
			_ = s.send(frame{ID: f.ID, Kind: kindEnd, Error: Errorf(CodeBusy, "%d requests are running", count)})
			return
		}
		defer context.AfterFunc(ctx, func() { r.close(context.Cause(ctx)) })()
		if s.ended() {
			cancel(ErrEnded) // end may have been before the request was known
		}
		s.answer(ctx, r, f)
		r.close(errDone)
	})
	return nil
}

// streams makes the streams that a request has.
func (s *session) streams(r *serving, f frame) {
	var out []stream
	switch f.Kind {
	case kindExec:
		out = []stream{stdout, stderr}
	case kindRead:
		out = []stream{content}
	}
	for _, name := range out {
		r.out[name] = newOutbox(func(data []byte, last bool) error {
			return s.send(frame{ID: f.ID, Kind: kindData, Stream: name, Data: data, Last: last})
		})
	}
	in := content
	if f.Kind == kindExec {
		in = stdin
	}
	if f.Kind == kindWrite || f.Kind == kindExec && f.Input {
		r.in = newInbox(func(n int) {
			_ = s.send(frame{ID: f.ID, Kind: kindCredit, Stream: in, Credit: n}) // else the stream has ended
		})
	}
}

// answer does a request and sends its end.
func (s *session) answer(ctx context.Context, r *serving, f frame) {
	end := s.do(ctx, r, f)
	end.ID, end.Kind = f.ID, kindEnd
	s.mu.Lock()
	delete(s.requests, f.ID)
	s.mu.Unlock()
	if f.Kind == kindShutdown && end.Error == nil {
		s.sendAndWait(end)
		s.server.guest.PowerOff()
		return
	}
	_ = s.send(end) // else there is no host
}

func (s *session) do(ctx context.Context, r *serving, f frame) (end frame) {
	var err error
	guest := s.server.guest
	switch {
	case f.Kind == kindPing:
		status := guest.Status()
		end.Status = &status
	case f.Kind == kindExec && f.Exec == nil:
		err = Errorf(CodeInvalid, "there is no command")
	case f.Kind == kindExec && r.in == nil:
		end.ExitCode, err = guest.Exec(ctx, *f.Exec, nil, r.out[stdout], r.out[stderr])
	case f.Kind == kindExec:
		end.ExitCode, err = guest.Exec(ctx, *f.Exec, r.in, r.out[stdout], r.out[stderr])
	case f.Kind == kindRead:
		end.Size, err = guest.ReadFile(ctx, f.Path, r.out[content])
	case f.Kind == kindWrite:
		end.Size, err = guest.WriteFile(ctx, f.Path, fs.FileMode(f.Mode).Perm(), r.in)
	case f.Kind == kindShutdown:
		err = guest.Shutdown()
	}
	end.Error = asError(err)
	return end
}

// close ends the streams of a request at once.
func (r *serving) close(why error) {
	if r.in != nil {
		r.in.close(why)
	}
	for _, out := range r.out {
		out.close(why)
	}
}
