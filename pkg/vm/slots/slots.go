// Package slots keeps directories that all processes of a host share: one process at a time fills a slot, any number of
// them use what is in it, and Prune removes slots that are no longer in use. A slot belongs to the operator: guests and
// tenants have no way to write to it.
package slots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const (
	// UseName is the file of a slot on which each user of it holds a shared lock. Its modification time is that of the
	// last use.
	UseName = "use"
	// LockName is the lock file of a slot.
	LockName = "." + lockedName + disk.LockName
	// lockedName is the file by whose name a slot is locked. It need not exist: if the directory itself were locked
	// while it is pruned, it would count as an image that does not exist yet.
	lockedName = "manifest.json"
	// Mode lets a QEMU that is not root read the directory.
	Mode = 0o755
)

// Slot is a directory that this process has locked to fill it.
type Slot struct {
	// Directory is its path.
	Directory string
	lock      *disk.Lock
}

// Patience is how a process waits for a slot.
type Patience struct {
	// Poll is the interval between two checks of the lock, Every that between two calls of Waiting.
	Poll, Every time.Duration
	// Waiting is called with the holder of the lock, which may be nil, by the goroutine that waits.
	Waiting func(*disk.Holder)
}

// Enter locks a slot, and makes its directory if that is missing. It waits for the current holder of the lock, until
// the context ends. The error is a *disk.FullError if there is no room.
func Enter(ctx context.Context, directory string, patience Patience) (*Slot, error) {
	look := time.NewTicker(patience.Poll)
	defer look.Stop()
	var told time.Time
	for {
		if err := makeDirectory(directory); err != nil {
			return nil, disk.ExplainFull(filepath.Dir(directory), 0, err)
		}
		lock, err := Lock(directory)
		var locked *disk.LockedError
		switch {
		case err == nil:
			return &Slot{directory, lock}, nil
		case errors.As(err, &locked):
			if time.Since(told) >= patience.Every {
				patience.Waiting(locked.Holder)
				told = time.Now()
			}
		case !errors.Is(err, fs.ErrNotExist): // which is the error if it was just pruned
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-look.C:
		}
	}
}

// Lock locks a slot. It fails at once with a *disk.LockedError if it is locked, and with fs.ErrNotExist if its
// directory does not exist.
func Lock(directory string) (*disk.Lock, error) {
	return disk.Acquire(filepath.Join(directory, lockedName))
}

// makeDirectory creates a directory, or opens up one that an earlier version restricted to root. It succeeds, too, if
// the directory is pruned meanwhile: locking it shows that.
func makeDirectory(directory string) error {
	err := os.MkdirAll(directory, Mode)
	if err != nil && !errors.Is(err, fs.ErrExist) { // which is the error if the directory is pruned while it is made
		return err
	}
	info, err := os.Stat(directory)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: directory, Err: unix.ENOTDIR}
	}
	if err == nil && info.Mode().Perm()&Mode != Mode {
		err = os.Chmod(directory, Mode)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close unlocks the slot.
func (s *Slot) Close() error { return s.lock.Close() }

// Share marks the slot as used. It never has to wait, because pruning first needs the lock of the slot.
func (s *Slot) Share() (*Use, error) {
	file, err := os.OpenFile(filepath.Join(s.Directory, UseName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, disk.ExplainFull(s.Directory, 0, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("marking it as used: %w", err), file.Close())
	}
	touch(file.Name())
	return &Use{file}, nil
}

// Remove removes the slot with all that is in it, unless it is used. The slot still has to be closed.
func (s *Slot) Remove() (used bool, err error) { return remove(s.Directory) }

// Use is a mark that a slot is used: it is not pruned until Release, or the end of the process.
type Use struct{ file *os.File }

// Find marks a slot as used without its lock; nil if it does not exist or is being pruned. It writes nothing, and works
// in a directory that is read-only. What is in the slot may be incomplete.
func Find(directory string) *Use {
	name := filepath.Join(directory, UseName)
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	// Prune locks the file before it renames the directory: a slot whose file is still in its place is now in use and is
	// kept.
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil || !disk.IsAt(file, name) {
		_ = file.Close() // nothing was written
		return nil
	}
	return &Use{file}
}

// Touch records the time of the use.
func (u *Use) Touch() { touch(u.file.Name()) }

// Drop ends the use, and does not count it as one.
func (u *Use) Drop() { _ = u.file.Close() } // nothing was written

// Release ends the use. It may be called more than once, and on nil.
func (u *Use) Release() error {
	if u == nil {
		return nil
	}
	u.Touch()
	if err := u.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// touch records the time of the last use. If that fails, at worst the slot is pruned too early, and filled again.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}
