package disk

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// FullError says that a file system has no room. It is syscall.ENOSPC for errors.Is.
type FullError struct {
	// Path is the file that did not fit.
	Path string
	// Needed is how many bytes it still needed, 0 when that is not known.
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

// Unwrap is syscall.ENOSPC.
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

// ExplainFull is err, or a *FullError when err comes from a full file system or an exhausted quota.
func ExplainFull(path string, needed int64, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	// A quota tells nothing of itself: what the file system has left is the best there is to say.
	free, _ := Free(path)
	return &FullError{Path: path, Needed: needed, Free: free}
}
