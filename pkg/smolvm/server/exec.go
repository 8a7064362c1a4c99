package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// chunk is the most that an event of output holds, in bytes.
const chunk = 32 << 10

func (s *server) execRequest(w http.ResponseWriter, r *http.Request) (api.ExecRequest, error) {
	request, _, err := decode[api.ExecRequest](w, r, s.limits.body, strict)
	if err == nil && len(request.Command) == 0 {
		err = api.Errorf(api.CodeBadRequest, "command cannot be empty")
	}
	return request, err
}

func (s *server) exec(w http.ResponseWriter, r *http.Request, p params) error {
	request, err := s.execRequest(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	output := &boundedOutput{left: s.limits.output, stop: cancel}
	defer s.meters.executed(time.Now())
	code, err := s.machines.Exec(ctx, p.name, request, output.writer(&output.stdout), output.writer(&output.stderr))
	// A command that starts the machine changes it.
	s.watch.poke()
	stdout, stderr, tooMuch := output.end()
	if tooMuch {
		return api.Errorf(api.CodeUnsupported, "the command wrote more than %d bytes, which one answer can hold; use exec/stream", s.limits.output)
	}
	return answer(w, api.ExecResponse{
		ExitCode: code, Stdout: text(stdout), Stderr: text(stderr), StdoutB64: stdout, StderrB64: stderr,
	}, err)
}

func text(output []byte) string { return strings.ToValidUTF8(string(output), string(utf8.RuneError)) }

var errTooMuch = errors.New("the command wrote more than one answer can hold")

// boundedOutput is what a command has written, up to a size in bytes for both streams. A guest writes it.
type boundedOutput struct {
	stop context.CancelFunc

	mu             sync.Mutex
	left           int
	tooMuch        bool
	stdout, stderr bytes.Buffer
}

// end returns what was written. It is not nil, which JSON would show as null.
func (b *boundedOutput) end() (stdout, stderr []byte, tooMuch bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]byte{}, b.stdout.Bytes()...), append([]byte{}, b.stderr.Bytes()...), b.tooMuch
}

func (b *boundedOutput) writer(into *bytes.Buffer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tooMuch = b.tooMuch || len(p) > b.left; b.tooMuch {
			b.stop()
			return 0, errTooMuch
		}
		b.left -= len(p)
		return into.Write(p)
	})
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var keepaliveEvent = []byte(":\n\n")

func (s *server) execStream(w http.ResponseWriter, r *http.Request, p params) error {
	request, err := s.execRequest(w, r)
	if err != nil {
		return err
	}
	events, ctx := newStream(w, r, typeEvents, keepaliveEvent, s.limits.alive)
	defer events.close()
	stdout, stderr := &outputEvents{stream: events, name: api.EventStdout}, &outputEvents{stream: events, name: api.EventStderr}
	defer s.meters.executed(time.Now())
	code, err := s.machines.Exec(ctx, p.name, request, stdout, stderr)
	s.watch.poke()
	if err == nil {
		err = errors.Join(stdout.flush(), stderr.flush())
	}
	if err != nil {
		return events.end(fmt.Errorf("running a command in machine %s: %w", p.name, err))
	}
	return events.event(api.EventExit, api.ExecExit{ExitCode: code})
}

// outputEvents sends what a command writes as events. The bytes of a character stay together, for clients that know no
// api.EventExactField.
type outputEvents struct {
	stream *stream
	name   string

	mu sync.Mutex
	// begun is the beginning of a character.
	begun []byte
}

// Write implements io.Writer.
func (o *outputEvents) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part := rest[:min(chunk, len(rest))]
		rest = rest[len(part):]
		whole := append(o.begun, part...)
		cut := len(whole) - lengthOfPartialRune(whole)
		o.begun = append([]byte{}, whole[cut:]...)
		if err := o.send(whole[:cut]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush sends the beginning of a character that has no rest.
func (o *outputEvents) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := o.begun
	o.begun = nil
	return o.send(rest)
}

func (o *outputEvents) send(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return o.stream.send(api.AppendEvent(nil, api.Event{Name: o.name, Data: data}))
}

// lengthOfPartialRune returns how many bytes at the end are the beginning of a character.
func lengthOfPartialRune(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
