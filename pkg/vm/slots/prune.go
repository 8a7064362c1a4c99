package slots

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Aside is in the name of a directory that is being removed, before a unique part: another directory of the same name
// may be removed before it is gone.
const Aside = ".pruned"

// Prune removes the slots of a directory that have not been used for as long as keep and that are neither in use nor
// locked, and leftovers of broken removals. It never waits, and touches only directories whose name matches. pruned is
// called with the name of each slot that is gone. If the directory is missing or read-only, it does nothing.
func Prune(ctx context.Context, directory string, names *regexp.Regexp, keep time.Duration, pruned func(name string)) error {
	if errors.Is(unix.Access(directory, unix.W_OK), unix.EROFS) {
		return nil
	}
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		path := filepath.Join(directory, e.Name())
		switch name, _, removed := strings.Cut(e.Name(), Aside); {
		case !e.IsDir() || !names.MatchString(name):
		case removed: // an earlier removal was interrupted
			errs = append(errs, removeAside(path))
		default:
			errs = append(errs, prune(path, keep, pruned))
		}
	}
	return errors.Join(errs...)
}

// Discard removes a slot with all that is in it, unless it is locked or used.
func Discard(directory string) error {
	lock, err := Lock(directory)
	if errors.Is(err, disk.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = remove(directory)
	return errors.Join(err, lock.Close())
}

func prune(path string, keep time.Duration, pruned func(name string)) error {
	// Others may keep directories with such names. One without a lock file was never a slot.
	if _, err := os.Lstat(filepath.Join(path, LockName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if recent, err := usedWithin(path, keep); recent || err != nil {
		return err
	}
	lock, err := Lock(path)
	if errors.Is(err, disk.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept, err := usedWithin(path, keep)
	if err == nil && !kept {
		kept, err = remove(path)
	}
	if err == nil && !kept {
		pruned(filepath.Base(path))
	}
	return errors.Join(err, lock.Close())
}

// remove removes a directory unless it is used. It needs the lock of the directory. It renames the directory before
// that, so that processes that wait for its lock find a new directory under its name, and nothing is removed while they
// use it.
func remove(path string) (used bool, err error) {
	use, err := os.OpenFile(filepath.Join(path, UseName), os.O_RDWR, 0)
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
	aside := path + Aside + rand.Text()
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

// usedWithin reports whether the slot was used, or, if it never was, created, within the given time.
func usedWithin(path string, last time.Duration) (bool, error) {
	info, err := os.Stat(filepath.Join(path, UseName))
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
