package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// writePatience is how long a client may take to read a part of an answer.
const writePatience = 30 * time.Second

const (
	contentType = "Content-Type"
	typeJSON    = "application/json"
	typeText    = "text/plain; charset=utf-8"
	typeBytes   = "application/octet-stream"
)

// traceID is 8 hexadecimal digits of a counter and 8 of the process, as in smolvm.
func traceID(request uint32, pid int) string { return fmt.Sprintf("%08x%08x", request, pid) }

// rejection is an answer of the HTTP framework under smolvm: it has a sentence and no envelope.
type rejection struct {
	status int
	text   string
}

// Error implements error.
func (r rejection) Error() string { return r.text }

func rejectf(status int, format string, arguments ...any) error {
	return rejection{status: status, text: fmt.Sprintf(format, arguments...)}
}

// fail answers with an error.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(context.Cause(r.Context()), errTimeLimit) {
		// withinTime answers.
		return
	}
	var rejected rejection
	if errors.As(err, &rejected) {
		w.Header().Set(contentType, typeText)
		w.WriteHeader(rejected.status)
		_, _ = w.Write([]byte(rejected.text))
		return
	}
	told := api.ErrorOf(err)
	if told.Code == "" {
		told.Code = api.CodeInternal
	}
	status := told.Status()
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, told)
}

// answer answers 200 with JSON, or passes the error on.
func answer[T any](w http.ResponseWriter, value T, err error) error {
	if err == nil {
		writeJSON(w, http.StatusOK, value)
	}
	return err
}

// writeJSON answers with JSON. A client that is gone needs no answer, so errors are dropped.
func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set(contentType, typeJSON)
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
}

func refuseMethod(w http.ResponseWriter, allowed []string) {
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(slices.Compact(allowed), ","))
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// errTimeLimit ends the context of a request that takes too long.
var errTimeLimit = errors.New("the request took too long")

// withinTime answers 408 with nothing if a function takes longer than a limit. The function's context ends then; what it
// still writes is dropped. If the answer has begun, the connection is cut, so that the client cannot take the part for
// the whole.
func withinTime(limit time.Duration, w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, errTimeLimit)
	defer cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	guarded := &expiringWriter{target: w, header: w.Header().Clone()}
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		serve(guarded, r.WithContext(ctx))
	}()
	select {
	case panicked := <-done:
		if panicked != nil {
			panic(panicked)
		}
		if errors.Is(context.Cause(ctx), errTimeLimit) {
			guarded.expire()
		}
		guarded.finish()
	case <-timer.C:
		if begun := guarded.expire(); begun {
			panic(http.ErrAbortHandler)
		}
	}
}

// expiringWriter is a ResponseWriter that can be taken away from a function that still uses it.
type expiringWriter struct {
	target http.ResponseWriter
	// header belongs to the function until the answer begins.
	header http.Header

	mu      sync.Mutex
	begun   bool
	expired bool
}

// Header implements http.ResponseWriter.
func (e *expiringWriter) Header() http.Header { return e.header }

// WriteHeader implements http.ResponseWriter.
func (e *expiringWriter) WriteHeader(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(status)
}

// Write implements http.ResponseWriter.
func (e *expiringWriter) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(http.StatusOK)
	if e.expired {
		return 0, errTimeLimit
	}
	return e.target.Write(p)
}

func (e *expiringWriter) begin(status int) {
	if e.begun || e.expired {
		return
	}
	e.begun = true
	for key, values := range e.header {
		e.target.Header()[key] = values
	}
	e.target.WriteHeader(status)
}

// finish begins the answer of a function that has written none.
func (e *expiringWriter) finish() { e.WriteHeader(http.StatusOK) }

// expire takes the writer away and answers 408, unless the answer has begun, which it returns.
func (e *expiringWriter) expire() (begun bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expired = true
	if !e.begun {
		e.target.WriteHeader(http.StatusRequestTimeout)
	}
	return e.begun
}
