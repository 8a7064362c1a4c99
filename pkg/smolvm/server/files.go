package server

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// checkPath refuses paths whose meaning depends on where they are read.
func checkPath(file string) error {
	if path.Clean(file) != file || strings.ContainsRune(file, 0) {
		return api.Errorf(api.CodeBadRequest, "%.100q is not the path of a file without . and ..", file)
	}
	return nil
}

func (s *server) readFile(w http.ResponseWriter, r *http.Request, p params) error {
	if err := checkPath(p.path); err != nil {
		return err
	}
	begun := false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set(contentType, typeBytes)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(http.StatusOK)
		}
	}
	err := s.machines.ReadFile(r.Context(), p.name, p.path, writerFunc(func(part []byte) (int, error) {
		begin()
		return w.Write(part)
	}))
	switch {
	case err == nil:
		begin()
		return nil
	case begun:
		s.log.Error("A file of a machine could not be read to its end", "machine", p.name, "error", err)
		// The client must not take the part for the whole.
		panic(http.ErrAbortHandler)
	}
	return fmt.Errorf("reading %s of machine %s: %w", p.path, p.name, err)
}

func (s *server) writeFile(w http.ResponseWriter, r *http.Request, p params) error {
	if err := checkPath(p.path); err != nil {
		return err
	}
	if r.ContentLength > s.limits.file {
		return s.tooLarge()
	}
	var long *http.MaxBytesError
	limited := http.MaxBytesReader(w, r.Body, s.limits.file)
	size, err := s.machines.WriteFile(r.Context(), p.name, p.path, readerFunc(func(into []byte) (int, error) {
		n, err := limited.Read(into)
		// The machines may hide the reason in their own words.
		_ = errors.As(err, &long)
		return n, err
	}))
	switch {
	case long != nil:
		return s.tooLarge()
	case err != nil:
		return fmt.Errorf("writing %s of machine %s: %w", p.path, p.name, err)
	}
	return answer(w, api.FileWritten{Path: p.path, Size: size}, nil)
}

func (s *server) tooLarge() error {
	return rejectf(http.StatusRequestEntityTooLarge, "Failed to buffer the request body: length limit exceeded")
}

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
