package osimage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// pruned is in the name of a directory that is being removed, before a unique part: another directory of the same name
// may be removed before it is gone.
const pruned = ".pruned"

var slotPattern = regexp.MustCompile(`^.+-[0-9a-f]{16}$`)

// Prune removes the images that have not been used for as long as keep and that are neither in use nor being
// downloaded, and leftovers of broken downloads. It never waits, and touches only entries that belong to images. If the
// cache is read-only, it does nothing.
func (c *Cache) Prune(ctx context.Context, keep time.Duration) error {
	if errors.Is(unix.Access(c.Directory, unix.W_OK), unix.EROFS) {
		return nil
	}
	entries, err := os.ReadDir(c.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pruning images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		path := filepath.Join(c.Directory, e.Name())
		switch name, _, removed := strings.Cut(e.Name(), pruned); {
		case !e.IsDir() || !slotPattern.MatchString(name):
		case removed: // an earlier removal was interrupted
			errs = append(errs, removeAside(path))
		default:
			errs = append(errs, c.prune(path, keep))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pruning images: %w", err)
	}
	return nil
}

// prune renames the directory before it removes it, so that processes that wait for its lock find a new directory under
// its name, and nothing is removed while they use it.
func (c *Cache) prune(path string, keep time.Duration) error {
	// Others may keep directories with such names. One without a lock file was never a slot.
	if _, err := os.Lstat(filepath.Join(path, lockName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if recent, err := usedWithin(path, keep); recent || err != nil {
		return err
	}
	lock, err := lockSlot(path)
	if errors.Is(err, disk.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	used, err := c.remove(path, keep)
	if err == nil && !used {
		c.tell("pruned %s, unused for %s", filepath.Base(path), keep)
	}
	return errors.Join(err, lock.Close())
}

// remove needs the lock of the directory.
func (c *Cache) remove(path string, keep time.Duration) (used bool, err error) {
	if recent, err := usedWithin(path, keep); recent || err != nil {
		return true, err
	}
	use, err := os.OpenFile(filepath.Join(path, useName), os.O_RDWR, 0)
	if err == nil {
		err = unix.Flock(int(use.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		defer use.Close() //nolint:errcheck // nothing was written
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	aside := path + pruned + rand.Text()
	if err := os.Rename(path, aside); err != nil {
		return true, err
	}
	return false, removeAside(aside)
}

// maxLate bounds how often a file may be created in a directory that is being removed.
const maxLate = 100

// removeAside removes a directory that was renamed. Each process that opened it before that may still create one lock
// file in it, and then finds that the name refers to another directory.
func removeAside(path string) error {
	for range maxLate {
		if err := os.RemoveAll(path); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return os.RemoveAll(path)
}

// usedWithin reports whether the image was used, or, if it never was, created, within the given time.
func usedWithin(path string, last time.Duration) (bool, error) {
	info, err := os.Stat(filepath.Join(path, useName))
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // another process has pruned it
	}
	if err != nil {
		return true, err
	}
	return time.Since(info.ModTime()) < last, nil
}
