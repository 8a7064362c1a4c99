package agentwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// written is how long the last answer may take before the machine is powered off without it.
const written = 3 * time.Second

// Guest does what a host requests. Its methods are called concurrently. An Error in what they return reaches the host with
// its code. Streams end with an error when ctx does.
type Guest interface {
	Status() Status
	// Exec has the semantics of Client.Exec. stdin is nil if there is none.
	Exec(ctx context.Context, e Exec, stdin io.Reader, stdout, stderr io.Writer) (int, error)
	ReadFile(ctx context.Context, path string, out io.Writer) (int64, error)
	WriteFile(ctx context.Context, path string, mode fs.FileMode, in io.Reader) (int64, error)
	// Shutdown ends all processes, and returns when all data is on the disks. It is called once, and continues if its
	// host disconnects.
	Shutdown() error
	// PowerOff is called when the host has the answer to Shutdown, or does not take it.
	PowerOff()
}

// Serve serves one host after another on the guest's port. It returns the error of reading the port; ErrAway is none. spawn
// starts a goroutine.
func Serve(port io.ReadWriter, guest Guest, spawn func(func())) error {
	s := &server{guest: guest, spawn: spawn, out: make(chan outgoing, queue), stop: make(chan struct{})}
	defer close(s.stop)
	spawn(func() { s.write(port) })
	err := s.read(newReader(port))
	s.session.end(err)
	return err
}

type server struct {
	guest Guest
	spawn func(func())
	out   chan outgoing
	stop  chan struct{}
	// session is the current one; nil before the first. Only the reading goroutine uses it.
	session *session
}

// outgoing is a frame of a session, which is dropped once the session has ended.
type outgoing struct {
	session *session
	text    []byte
	// taken is closed after the frame was written or dropped; it may be nil.
	taken chan struct{}
}

func (s *server) write(port io.Writer) {
	for {
		select {
		case <-s.stop:
			return
		case o := <-s.out:
			if !o.session.ended() {
				// An error is not the end: the port outlives its hosts. The reader learns what there is to learn.
				_, _ = port.Write(o.text)
			}
			if o.taken != nil {
				close(o.taken)
			}
		}
	}
}

// read takes in frames. It waits only for the port, and for room in the queue when it welcomes a host, which reads.
func (s *server) read(from *reader) error {
	lost := true // there is no session before the first mark
	for {
		var err error
		if lost {
			if err = from.skip(0); err == nil {
				err = errMark
			}
		} else {
			err = s.next(from)
		}
		switch {
		case errors.Is(err, errMark):
			lost = s.begin(from) != nil
		case errors.Is(err, errProtocol):
			s.session.fail(err)
			lost = true
		case errors.Is(err, ErrAway):
			s.session.end(err)
			lost = true
		case err != nil:
			return err
		}
	}
}

// next takes in one frame of the session.
func (s *server) next(from *reader) error {
	text, err := from.next()
	if err != nil {
		return err
	}
	f, err := decode(text)
	if err != nil {
		return err
	}
	return s.session.receive(f)
}

// begin begins a session after its mark. Without a hello there is none. A mark within the hello begins another one.
func (s *server) begin(from *reader) error {
	s.session.end(errors.New("another host has connected"))
	text, err := from.next()
	for errors.Is(err, errMark) {
		text, err = from.next()
	}
	if err != nil {
		return err
	}
	f, err := decode(text)
	if err != nil {
		return err
	}
	if f.Kind != kindHello || f.Session == "" {
		return fmt.Errorf("%w: a session begins with %q", errProtocol, readable(string(f.Kind)))
	}
	s.session = newSession(s)
	answer := frame{Kind: kindWelcome, Session: f.Session, Version: Version}
	if f.Version != Version {
		answer.Kind = kindFail
		answer.Error = Errorf(CodeInvalid, "the agent speaks version %d of the protocol, and the host version %d", Version, f.Version)
	}
	welcome, err := opening(answer)
	if err != nil {
		return err
	}
	select {
	case s.out <- outgoing{session: s.session, text: welcome}:
	case <-s.session.done:
	}
	return nil
}
