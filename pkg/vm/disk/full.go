package disk

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// FullError says that a file system has no room. errors.Is finds syscall.ENOSPC in it.
type FullError struct {
	// Path is the file that did not fit.
	Path string
	// Needed is how many bytes it still needed, 0 if that is unknown.
	Needed int64
	// Free is how many bytes the file system had left.
	Free int64
}

// Error names path, needed and free bytes.
func (e *FullError) Error() string {
	if e.Needed == 0 {
		return fmt.Sprintf("no space left for %s: %d bytes are free", e.Path, e.Free)
	}
	return fmt.Sprintf("no space left for %s: %d bytes are needed and %d are free", e.Path, e.Needed, e.Free)
}

// Unwrap returns syscall.ENOSPC.
func (e *FullError) Unwrap() error { return syscall.ENOSPC }

// Free returns how many bytes an unprivileged user could still write to the file system of an existing path.
func Free(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", path, err)
	}
	if free := s.Bavail * uint64(max(s.Bsize, 0)); free < math.MaxInt64 {
		return int64(free), nil
	}
	return math.MaxInt64, nil
}

// ExplainFull returns err, or a *FullError if err comes from a full file system or an exhausted quota.
func ExplainFull(path string, needed int64, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	// A quota reports nothing about itself: the free space of the file system is the best available information.
	free, _ := Free(path)
	return &FullError{Path: path, Needed: needed, Free: free}
}
