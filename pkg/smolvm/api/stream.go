package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const eventStream = "text/event-stream"

// watchPatience is how long a watch may be silent.
const watchPatience = 3 * WatchAliveSeconds * time.Second

// MaxTail is the largest number of lines that logs are asked for.
const MaxTail = 10000

// ExecStream runs a command in the guest, and copies its output to writers while it comes. It starts the machine if it
// does not run. It returns the command's exit code, see ExecResponse. If a writer returns an error, the request ends.
func (c *Client) ExecStream(ctx context.Context, name string, r ExecRequest, stdout, stderr io.Writer) (int, error) {
	target, err := machinePath(name, "/exec/stream")
	if err != nil {
		return 0, err
	}
	var exit *ExecExit
	err = c.events(ctx, call{method: http.MethodPost, path: target, body: r}, func(e Event) error {
		switch e.Name {
		case EventStdout:
			return writeAll(stdout, e.Data)
		case EventStderr:
			return writeAll(stderr, e.Data)
		case EventExit:
			return json.Unmarshal(e.Data, &exit)
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, err
	case exit == nil:
		return 0, fmt.Errorf("running a command in machine %s: the answer ended before the command: %w", name, io.ErrUnexpectedEOF)
	}
	return exit.ExitCode, nil
}

func writeAll(w io.Writer, p []byte) error {
	_, err := w.Write(p)
	return err
}

// LogsOptions are which lines of the console are asked for.
type LogsOptions struct {
	// Tail is the number of the last lines, at most MaxTail. Nil: MaxTail.
	Tail *int
	// Follow also returns the lines that are written later, until the context ends.
	Follow bool
	// JSON leaves out lines that are not JSON.
	JSON bool
}

// Logs copies the lines of a machine's console to a writer. If it follows, it ends without an error when the server ends
// the answer, and with that of the context.
func (c *Client) Logs(ctx context.Context, name string, o LogsOptions, out io.Writer) error {
	target, err := machinePath(name, "/logs")
	if err != nil {
		return err
	}
	query := url.Values{}
	if o.Tail != nil {
		query.Set("tail", strconv.Itoa(*o.Tail))
	}
	if o.Follow {
		query.Set("follow", "true")
	}
	if o.JSON {
		query.Set("format", "json")
	}
	return c.events(ctx, call{method: http.MethodGet, path: target, query: query}, func(e Event) error {
		if e.Name != "" {
			return nil
		}
		return writeAll(out, append(e.Data, '\n'))
	})
}

// events makes a request and handles the events of its answer. An event error is an error.
func (c *Client) events(ctx context.Context, q call, each func(Event) error) error {
	answer, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if !hasType(answer, eventStream) {
		return fmt.Errorf("reading the answer to %s %s of smolvm: it is no stream of events", q.method, q.path)
	}
	err = ReadEvents(answer.Body, func(e Event) error {
		if e.Name == EventError {
			return streamError(e.Data)
		}
		return each(e)
	})
	var told *Error
	if err == nil || errors.As(err, &told) {
		return err
	}
	return fmt.Errorf("reading the answer to %s %s of smolvm: %w", q.method, q.path, err)
}

// streamError returns the error of an event error.
func streamError(data []byte) error {
	var said StreamError
	if json.Unmarshal(data, &said) != nil || said.Message == "" {
		said = StreamError{Message: "smolvm ended the stream with an error: " + printable(string(data))}
	}
	if said.Code == "" {
		said.Code = CodeInternal
	}
	return &Error{Message: said.Message, Code: said.Code}
}

// Watch calls a function with the machines, and then with each change, until the context ends, the server ends the answer
// or the function returns an error. It never returns nil: the caller asks again. The error has CodeUnsupported if the
// server cannot watch, as smolvm itself. A server that is silent for long is given up.
func (c *Client) Watch(ctx context.Context, each func(WatchEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.patience, func() {
		cancel(fmt.Errorf("watching the machines of smolvm: the server was silent for %s", c.patience))
	})
	defer silence.Stop()
	answer, err := c.send(ctx, call{method: http.MethodGet, path: machinesPath, query: url.Values{"watch": {"true"}}})
	if err != nil {
		return causeOf(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if !hasType(answer, WatchContentType) {
		return Errorf(CodeUnsupported, "this server cannot tell changes of machines")
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		silence.Reset(c.patience)
		if err := handleWatchLine(lines.Bytes(), each); err != nil {
			return err
		}
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return causeOf(ctx, fmt.Errorf("watching the machines of smolvm: %w", err))
}

func handleWatchLine(line []byte, each func(WatchEvent) error) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var event WatchEvent
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("watching the machines of smolvm: decoding a line: %w", err)
	}
	return each(event)
}

// causeOf returns why a context was canceled, or else an error.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
