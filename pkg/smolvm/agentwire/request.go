package agentwire

import (
	"context"
	"fmt"
	"sync"
)

// request is one that the host has sent.
type request struct {
	id uint64
	// in are the streams that the guest may send, and out the one that it takes.
	in  map[stream]*inbox
	out *outbox
	// answer has the last frame.
	answer chan frame
	// given is closed when the host has given up. Then what the guest still sends is dropped.
	given  chan struct{}
	giveUp sync.Once
}

// begin sends a request. to is the stream of its data, if it has one, and from those of its answer. done must be called
// when the caller needs no more of it. The request is canceled if ctx ends before.
func (c *Client) begin(ctx context.Context, f frame, to stream, from ...stream) (r *request, done func(), err error) {
	r = &request{in: map[stream]*inbox{}, answer: make(chan frame, 1), given: make(chan struct{})}
	for _, name := range from {
		r.in[name] = newInbox(func(n int) {
			_ = c.send(frame{ID: r.id, Kind: kindCredit, Stream: name, Credit: n}, r.given) // else the stream has ended
		})
	}
	if to != "" {
		r.out = newOutbox(func(data []byte, last bool) error {
			return c.send(frame{ID: r.id, Kind: kindData, Stream: to, Data: data, Last: last}, r.given)
		})
	}
	if err := c.register(r); err != nil {
		return nil, nil, err
	}
	f.ID = r.id
	if err := c.send(f, ctx.Done()); err != nil {
		c.forget(r)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.cancel(r) })
	return r, func() { stop() }, nil
}

// register gives a request its id.
func (c *Client) register(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	if len(c.requests) >= MaxRequests {
		return Errorf(CodeBusy, "the guest has %d requests that have not ended", len(c.requests))
	}
	c.last++
	r.id = c.last
	c.requests[r.id] = r
	return nil
}

func (c *Client) forget(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, r.id)
}

// wait returns the last frame of a request, or why there is none.
func (c *Client) wait(ctx context.Context, r *request) (frame, error) {
	select {
	case f := <-r.answer:
		return f, answered(f)
	case <-r.given:
		return frame{}, context.Cause(ctx)
	case <-c.done:
	}
	select {
	case f := <-r.answer: // it was the last one of the session
		return f, answered(f)
	default:
		return frame{}, c.err
	}
}

// answered returns the error that the guest answers.
func answered(f frame) error {
	if f.Error == nil {
		return nil
	}
	code := f.Error.Code
	switch code {
	case CodeNotFound, CodeIsDirectory, CodeNotFile, CodeTooLarge, CodeNoSpace, CodeInvalid, CodeBusy, CodeCancelled:
	default:
		code = CodeFailed
	}
	return &Error{Code: code, Message: readable(f.Error.Message)}
}

// cancel makes the guest end a request, and waits for nothing. Its id stays taken until the guest has ended it.
func (c *Client) cancel(r *request) {
	r.giveUp.Do(func() {
		close(r.given)
		r.close(errCancelled)
		_ = c.send(frame{ID: r.id, Kind: kindCancel}, nil) // else the session has ended, and the request with it
	})
}

// receive takes in a frame of the guest. It never blocks.
func (r *request) receive(f frame) error {
	switch f.Kind {
	case kindData:
		if in := r.in[f.Stream]; in != nil {
			return in.put(f.Data, f.Last)
		}
	case kindCredit:
		if r.out != nil {
			return r.out.add(f.Credit)
		}
	case kindEnd:
		for _, in := range r.in {
			in.end()
		}
		if r.out != nil {
			r.out.close(errDone)
		}
		r.answer <- f
		return nil
	}
	return fmt.Errorf("%w: %q is no part of request %d", errProtocol, readable(string(f.Kind)), f.ID)
}

// close ends the streams of a request at once.
func (r *request) close(why error) {
	for _, in := range r.in {
		in.close(why)
	}
	if r.out != nil {
		r.out.close(why)
	}
}
