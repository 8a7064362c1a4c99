package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// maxLogLine is the length in bytes at which a line of the console is split. The guest writes it.
const maxLogLine = 64 << 10

// parse reads a parameter of a query; absent, it is the default. The error is axum's.
func parse[T any](query url.Values, name string, unset T, read func(string) (T, error)) (T, error) {
	if !query.Has(name) {
		return unset, nil
	}
	value, err := read(query.Get(name))
	if err != nil {
		return unset, rejectf(http.StatusBadRequest, "Failed to deserialize query string: %s: %v", name, err)
	}
	return value, nil
}

func readBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%.20q is neither true nor false", text)
}

func readCount(text string) (int, error) {
	number, err := strconv.ParseUint(text, 10, 31)
	return int(number), err
}

func (s *server) logs(w http.ResponseWriter, r *http.Request, p params) error {
	query := r.URL.Query()
	tail, err := parse(query, "tail", s.limits.tail, readCount)
	if err != nil {
		return err
	}
	follow, err := parse(query, "follow", false, readBool)
	if err != nil {
		return err
	}
	if tail > s.limits.tail {
		return api.Errorf(api.CodeBadRequest, "tail must be at most %d", s.limits.tail)
	}
	if follow {
		if !s.followers.enter(p.name) {
			return api.Errorf(api.CodeConflict, "machine '%s' has %d followers of its logs, which is the most", p.name, s.limits.followers)
		}
		defer s.followers.leave(p.name)
	}
	return s.sendLogs(w, r, p.name, tail, follow, query.Get("format") == "json")
}

func (s *server) sendLogs(w http.ResponseWriter, r *http.Request, name string, tail int, follow, onlyJSON bool) error {
	events, ctx := newStream(w, r, typeEvents, keepaliveEvent, s.limits.alive)
	defer events.close()
	ctx, cancel := untilStop(ctx)
	defer cancel()
	lines := &lineEvents{stream: events, onlyJSON: onlyJSON}
	err := s.machines.Logs(ctx, name, tail, follow, lines)
	if err == nil {
		err = lines.flush()
	}
	if follow && ctx.Err() != nil && events.hasBegun() {
		// The client has gone, or the server stops: following has no other end.
		return nil
	}
	if err == nil {
		return events.send(nil)
	}
	return events.end(fmt.Errorf("reading the logs of machine %s: %w", name, err))
}

// lineEvents sends each line that is written as an event.
type lineEvents struct {
	stream   *stream
	onlyJSON bool

	mu   sync.Mutex
	line []byte
}

// Write implements io.Writer.
func (l *lineEvents) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var events []byte
	for rest := p; len(rest) > 0; {
		part, _, ended := bytes.Cut(rest[:min(len(rest), maxLogLine-len(l.line))], []byte("\n"))
		l.line = append(l.line, part...)
		rest = rest[len(part):]
		if ended {
			rest = rest[1:]
		}
		if ended || len(l.line) == maxLogLine {
			events = l.take(events)
		}
	}
	return len(p), l.stream.send(events)
}

// flush sends the last line if it has no end.
func (l *lineEvents) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 {
		return nil
	}
	return l.stream.send(l.take(nil))
}

// take appends the line as an event, and begins another.
func (l *lineEvents) take(events []byte) []byte {
	line := bytes.TrimSuffix(l.line, []byte("\r"))
	if !l.onlyJSON || json.Valid(line) {
		events = api.AppendEvent(events, api.Event{Data: line})
	}
	l.line = l.line[:0]
	return events
}

// counter bounds how many there are of something, by name.
type counter struct {
	most int

	mu    sync.Mutex
	count map[string]int
}

func newCounter(most int) *counter { return &counter{most: most, count: map[string]int{}} }

// enter counts one more, unless there are as many as there may be.
func (c *counter) enter(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[name] >= c.most {
		return false
	}
	c.count[name]++
	return true
}

// leave counts one less.
func (c *counter) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[name]--; c.count[name] == 0 {
		delete(c.count, name)
	}
}

// stopKey is the key of a context's value: the context that ends when the server stops.
type stopKey struct{}

// untilStop returns a context that ends also when the server stops.
func untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	serving, ok := ctx.Value(stopKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	detach := context.AfterFunc(serving, cancel)
	return ctx, func() { detach(); cancel() }
}
