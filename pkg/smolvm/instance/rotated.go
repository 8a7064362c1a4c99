package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// How much is kept of what a guest prints, and of its keeper's log. A guest decides how much it prints.
const (
	maxConsole   = 10 << 20
	keptConsoles = 2
	maxLog       = 1 << 20
)

// rotated is a log file of bounded size. When it is full, it is renamed, and a new one begins.
type rotated struct {
	path string
	most int64
	// kept is how many older files are kept.
	kept int

	mu      sync.Mutex
	file    *os.File
	written int64
}

// openRotated opens a log file to append to it.
func openRotated(path string, most int64, kept int) (*rotated, error) {
	r := &rotated{path: path, most: most, kept: kept}
	return r, r.open()
}

func (r *rotated) open() error {
	file, err := ownfile.Open(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.written = file, info.Size()
	return nil
}

// Write appends p. What a full disk does not take is lost: the machine keeps running.
func (r *rotated) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written+int64(len(p)) > r.most && r.written > 0 {
		r.rotate()
	}
	if r.file == nil {
		_ = r.open()
	}
	if r.file != nil {
		n, _ := r.file.Write(p)
		r.written += int64(n)
	}
	return len(p), nil
}

// rotate renames the files. If that fails, the file is emptied, because its size is bounded in any case.
func (r *rotated) rotate() {
	for n := r.kept; n > 0; n-- {
		from := r.path
		if n > 1 {
			from = fmt.Sprintf("%s.%d", r.path, n-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", r.path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if r.file != nil && r.file.Truncate(0) == nil {
				r.written = 0
			}
			return
		}
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file = nil
	_ = r.open()
}

// Close closes the file.
func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
