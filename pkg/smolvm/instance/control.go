package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// execRequest is the body of POST /exec.
type execRequest struct {
	agentwire.Exec
	Stdin string `json:"stdin,omitempty"`
}

// execEvent is one line of its answer: output as it comes, and at last the exit code or an error.
type execEvent struct {
	Stdout   []byte     `json:"stdout,omitempty"`
	Stderr   []byte     `json:"stderr,omitempty"`
	ExitCode *int       `json:"exitCode,omitempty"`
	Error    *api.Error `json:"error,omitempty"`
}

// maxExec bounds a request in bytes. The server allows 2 MiB, of which JSON may make six times as much.
const maxExec = 16 << 20

// routes are what the control socket serves besides what every keeper serves. Only root may open it.
func (i *Instance) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		i.stop(errStopped)
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("POST /exec", i.serveExec)
	mux.HandleFunc("GET /files", i.serveReadFile)
	mux.HandleFunc("PUT /files", i.serveWriteFile)
	mux.HandleFunc("GET /egress", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(&i.events)
	})
}

var errStopped = errors.New("the machine was asked to stop")

func (i *Instance) serveExec(w http.ResponseWriter, r *http.Request) {
	var request execRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExec)).Decode(&request); err != nil {
		refuse(w, api.Errorf(api.CodeBadRequest, "reading the request: %v", err))
		return
	}
	client, err := i.agent.talk()
	if err != nil {
		refuse(w, api.Errorf(api.CodeUnavailable, "%v", err))
		return
	}
	events := &eventWriter{encoder: json.NewEncoder(w), flusher: http.NewResponseController(w)}
	code, err := client.Exec(r.Context(), request.Exec, strings.NewReader(request.Stdin), events.stream(false), events.stream(true))
	if err != nil {
		_ = events.send(execEvent{Error: fileError(fmt.Errorf("running %q: %w", request.Command[0], err))})
		return
	}
	_ = events.send(execEvent{ExitCode: &code})
}

// eventWriter writes events of both outputs of a command.
type eventWriter struct {
	mu      sync.Mutex
	encoder *json.Encoder
	flusher *http.ResponseController
}

func (e *eventWriter) send(event execEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.encoder.Encode(event); err != nil {
		return err
	}
	return e.flusher.Flush()
}

// stream returns the writer of one output.
func (e *eventWriter) stream(stderr bool) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		event := execEvent{Stdout: p}
		if stderr {
			event = execEvent{Stderr: p}
		}
		return len(p), e.send(event)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (i *Instance) serveReadFile(w http.ResponseWriter, r *http.Request) {
	client, err := i.agent.talk()
	if err != nil {
		refuse(w, api.Errorf(api.CodeUnavailable, "%v", err))
		return
	}
	out := &startedWriter{w: w}
	if _, err := client.ReadFile(r.Context(), r.URL.Query().Get("path"), out); err != nil {
		if out.started {
			panic(http.ErrAbortHandler) // the client must not take a part for the whole
		}
		refuse(w, fileError(err))
	}
}

// startedWriter knows whether something was written.
type startedWriter struct {
	w       io.Writer
	started bool
}

func (s *startedWriter) Write(p []byte) (int, error) {
	s.started = true
	return s.w.Write(p)
}

func (i *Instance) serveWriteFile(w http.ResponseWriter, r *http.Request) {
	client, err := i.agent.talk()
	if err != nil {
		refuse(w, api.Errorf(api.CodeUnavailable, "%v", err))
		return
	}
	size, err := client.WriteFile(r.Context(), r.URL.Query().Get("path"), modeOfFile, r.Body)
	if err != nil {
		refuse(w, fileError(err))
		return
	}
	_ = json.NewEncoder(w).Encode(size)
}

// modeOfFile is the mode of a file that is written in the guest.
const modeOfFile = 0o644

// fileError returns the error of the API for one of a file in the guest.
func fileError(err error) *api.Error {
	switch {
	case errors.Is(err, agentwire.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "%v", err)
	case errors.Is(err, agentwire.ErrIsDirectory), errors.Is(err, agentwire.ErrNotFile), errors.Is(err, agentwire.ErrTooLarge), errors.Is(err, agentwire.ErrInvalid):
		return api.Errorf(api.CodeBadRequest, "%v", err)
	case errors.Is(err, agentwire.ErrNoSpace):
		return api.Errorf(api.CodeDiskFull, "%v", err)
	case errors.Is(err, agentwire.ErrBusy), errors.Is(err, agentwire.ErrEnded):
		return api.Errorf(api.CodeUnavailable, "%v", err)
	}
	return api.ErrorOf(err)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(err.Status())
	_ = json.NewEncoder(w).Encode(err)
}

// Client talks to the process of a machine.
type Client struct {
	// Socket is the path of its control socket.
	Socket string
}

// Status returns what the process knows of its machine.
func (c Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.call(ctx, http.MethodGet, "/status", nil, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxExec)).Decode(&s)
	})
}

// Stop tells the process to shut its machine down, and does not wait for that.
func (c Client) Stop(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/stop", nil, nil)
}

// Exec runs a command in the guest and returns its exit code.
func (c Client) Exec(ctx context.Context, exec agentwire.Exec, stdin string, stdout, stderr io.Writer) (code int, err error) {
	body, err := json.Marshal(execRequest{Exec: exec, Stdin: stdin})
	if err != nil {
		return 0, err
	}
	ended := false
	err = c.call(ctx, http.MethodPost, "/exec", strings.NewReader(string(body)), func(body io.Reader) error {
		for events := json.NewDecoder(body); !ended; {
			var e execEvent
			if err := events.Decode(&e); err != nil {
				return err
			}
			if e.Error != nil {
				return e.Error
			}
			if e.ExitCode != nil {
				code, ended = *e.ExitCode, true
			}
			_, errOut := stdout.Write(e.Stdout)
			_, errErr := stderr.Write(e.Stderr)
			if err := errors.Join(errOut, errErr); err != nil {
				return err
			}
		}
		return nil
	})
	return code, err
}

// ReadFile writes the content of a file in the guest to out.
func (c Client) ReadFile(ctx context.Context, path string, out io.Writer) error {
	return c.call(ctx, http.MethodGet, "/files?path="+escape(path), nil, func(body io.Reader) error {
		_, err := io.Copy(out, body)
		return err
	})
}

// WriteFile writes a file in the guest, and returns its size in bytes.
func (c Client) WriteFile(ctx context.Context, path string, in io.Reader) (size int64, err error) {
	err = c.call(ctx, http.MethodPut, "/files?path="+escape(path), in, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&size)
	})
	return size, err
}

// EgressEvents returns what the guest was refused.
func (c Client) EgressEvents(ctx context.Context) (events api.EgressEvents, err error) {
	err = c.call(ctx, http.MethodGet, "/egress", nil, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxExec)).Decode(&events)
	})
	return events, err
}
