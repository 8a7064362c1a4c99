package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of a stream of events, which a server may write as it likes, in bytes.
const (
	maxLine  = 1 << 20
	maxEvent = 4 << 20
)

// Names of events. Those of logs have none.
const (
	EventStdout = "stdout"
	EventStderr = "stderr"
	EventExit   = "exit"
	EventError  = "error"
)

// EventExactField is an addition: the field of an event with the base64 of what its data stands for. It is there if that
// is no text, or has characters that end a line of the stream. Readers skip fields that they do not know.
const EventExactField = "b64"

var errLongLine = fmt.Errorf("a line of the stream has more than %d bytes", maxLine)

// Event is a server-sent event (HTML Living Standard, 9.2.6).
type Event struct {
	// Name is empty for a message.
	Name string
	// Data is what the event says: that of EventExactField if it is there.
	Data []byte
}

// ReadEvents calls a function for each event of a stream until it ends, which is no error, or until the function returns
// one. The stream is another's: lines and events are bounded, and an event that is cut off is dropped. The function must
// not keep the data.
func ReadEvents(stream io.Reader, each func(Event) error) error {
	lines := lineReader{bytes: bufio.NewReaderSize(stream, 32<<10)}
	var event partialEvent
	for first := true; ; first = false {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if len(line) > 0 {
			err = event.add(line)
		} else {
			err = event.dispatch(each)
		}
		if err != nil {
			return err
		}
	}
}

// lineReader reads lines that end in CR, LF or both.
type lineReader struct {
	bytes *bufio.Reader
	line  []byte
	// afterCR says that an LF is the rest of the line before. Waiting for it there would hold back an event.
	afterCR bool
}

// next returns a line, which is valid until the next call. A line without an end is io.EOF: it is cut off.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		c, err := l.bytes.ReadByte()
		if err != nil {
			return nil, err
		}
		rest := l.afterCR && c == '\n'
		l.afterCR = c == '\r'
		switch {
		case rest:
		case c == '\n' || c == '\r':
			return l.line, nil
		case len(l.line) == maxLine:
			return nil, errLongLine
		default:
			l.line = append(l.line, c)
		}
	}
}

// partialEvent is what the lines since the last empty one say.
type partialEvent struct {
	name  string
	data  []byte
	lines int
	exact []byte
	// hasExact says that exact counts, which may be empty.
	hasExact bool
}

func (e *partialEvent) add(line []byte) error {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	// Each line costs a byte at least, so that a stream of empty ones ends, too.
	if len(e.data)+len(e.exact)+len(value)+1 > maxEvent {
		return fmt.Errorf("an event of the stream has more than %d bytes", maxEvent)
	}
	switch string(field) {
	case "event":
		e.name = string(value)
	case "data":
		if e.lines++; e.lines > 1 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	case EventExactField:
		exact, err := base64.StdEncoding.AppendDecode(e.exact[:0], value)
		if err != nil {
			return fmt.Errorf("decoding the %s of an event: %w", EventExactField, err)
		}
		e.exact, e.hasExact = exact, true
	}
	// Comments, ids, retries and unknown fields mean nothing here.
	return nil
}

// dispatch hands over the event unless it has no data.
func (e *partialEvent) dispatch(each func(Event) error) error {
	event := Event{Name: e.name, Data: e.data}
	if e.hasExact {
		event.Data = e.exact
	}
	some := e.lines > 0
	*e = partialEvent{data: e.data[:0], exact: e.exact[:0]}
	if !some {
		return nil
	}
	return each(event)
}

// AppendEvent appends an event in the form of the stream. Its lines stay within the bounds of ReadEvents if it has at
// most 256 KiB of data.
func AppendEvent(stream []byte, e Event) []byte {
	if e.Name != "" {
		stream = append(append(append(stream, "event: "...), e.Name...), '\n')
	}
	text := strings.ToValidUTF8(string(e.Data), "\uFFFD")
	shown := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for line := range strings.SplitSeq(shown, "\n") {
		stream = append(append(append(stream, "data: "...), line...), '\n')
	}
	if shown != string(e.Data) {
		stream = append(append(stream, EventExactField...), ": "...)
		stream = append(base64.StdEncoding.AppendEncode(stream, e.Data), '\n')
	}
	return append(stream, '\n')
}
