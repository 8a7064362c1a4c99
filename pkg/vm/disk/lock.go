package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// LockName is the name of the lock file in a locked directory. The lock file of an image is beside the image, and named
// "." and the name of the image, followed by this name.
const LockName = ".kvm-operator.lock"

const (
	// maxHolder bounds what is read of a lock file, in bytes.
	maxHolder = 4096
	// maxReplaced bounds how often a lock file may be found replaced.
	maxReplaced = 100
)

// ErrLocked is what errors.Is finds in a *LockedError.
var ErrLocked = errors.New("locked")

// LockedError says that another process has the lock.
type LockedError struct {
	// Path is what was to be locked.
	Path string
	// Holder is who has the lock, nil if that is unknown.
	Holder *Holder
}

// Holder is the process that took a lock. The lock may have passed to a QEMU that it started and that outlived it.
type Holder struct {
	// PID is its process number, in its own container.
	PID int `json:"pid"`
	// Host is its host name, which for a node pod is the pod's name.
	Host string `json:"host"`
}

// String returns "process 7 of "m-abc"", or "another process" if h is nil.
func (h *Holder) String() string {
	if h == nil {
		return "another process"
	}
	return fmt.Sprintf("process %d of %q", h.PID, h.Host)
}

// Error names the path and the holder.
func (e *LockedError) Error() string {
	if e.Holder == nil {
		return e.Path + " is in use by another process"
	}
	return fmt.Sprintf("%s is locked by %s, or by a machine that it left running", e.Path, e.Holder)
}

// Is makes ErrLocked match.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Lock reserves a directory, raw image or block device for one virtual machine.
//
// The kernel ties a lock to the open file, not to the process. A child that inherits File holds the lock together with
// its parent, and the lock is freed when both have ended, however they end. So no second QEMU can open a disk while the
// first one lives, even if its runner was killed.
type Lock struct{ file *os.File }

// Acquire locks a directory, raw image or block device, or returns a *LockedError at once. An image need not exist yet,
// so a path that does not exist is treated as an image; its directory has to exist.
//
// Directories and images are locked by flock(2) on a separate file: on the image itself it would conflict with the
// locks of QEMU where flock is implemented by fcntl locks, as on NFS. A block device has a node in every container, and
// locks on one node do not exclude those on another; it is opened with O_EXCL instead, which claims the device itself
// (open(2)). That also rejects mounted devices, and is effective on one host.
func Acquire(path string) (*Lock, error) {
	file, err := acquire(path)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &Lock{file: file}, nil
}

// File returns the open file that carries the lock. To start QEMU, add it to exec.Cmd.ExtraFiles, which leaves it open
// there. It must not be closed, nor unlocked: LOCK_UN would free the lock for every process that inherited it.
func (l *Lock) File() *os.File { return l.file }

// Close releases the lock. The lock is still held while a child that inherited File lives.
func (l *Lock) Close() error { return l.file.Close() }

func acquire(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && info.Mode().Type() == fs.ModeDevice:
		// A path in a directory that a guest shares is never locked, so a link was created by the pod's author.
		return claim(path)
	case err == nil && info.IsDir():
		return lockFile(path, filepath.Join(path, LockName))
	}
	directory, name := filepath.Split(path)
	return lockFile(path, filepath.Join(directory, "."+name+LockName))
}

// claim opens a block device for exclusive use.
func claim(device string) (*os.File, error) {
	file, err := os.OpenFile(device, os.O_RDWR|syscall.O_EXCL, 0)
	if errors.Is(err, syscall.EBUSY) {
		return nil, &LockedError{Path: device}
	}
	return file, err
}

// lockFile locks the lock file of path. If the file is removed between opening and locking, another process may have
// locked a new one, so the name has to refer to the locked file in the end.
func lockFile(path, name string) (*os.File, error) {
	for range maxReplaced {
		file, err := openLockFile(name)
		if err != nil {
			return nil, err
		}
		if err := tryLock(path, file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if IsAt(file, name) {
			// If there is no room for the holder's name, the lock is still valid, only less informative.
			_ = sign(file)
			return file, nil
		}
		_ = file.Close()
	}
	return nil, fmt.Errorf("%s is replaced repeatedly", name)
}

// openLockFile trusts nothing that already exists: a guest that shares the directory may have put a link to a file of
// the host, or a device, in this place.
func openLockFile(name string) (*os.File, error) {
	file, err := ownfile.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, ExplainFull(filepath.Dir(name), 0, err)
	}
	return file, nil
}

func tryLock(path string, file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return &LockedError{Path: path, Holder: holder(file)}
		case err != nil:
			return fmt.Errorf("its file system grants no lock: %w", err)
		default:
			return nil
		}
	}
}

// IsAt reports whether an open file is still the one that its name refers to. A link in its place is another file.
func IsAt(file *os.File, name string) bool {
	have, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(name)
	return err == nil && os.SameFile(have, there)
}

// sign writes the holder of the lock to the file.
func sign(file *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	text, err := json.Marshal(Holder{PID: os.Getpid(), Host: host})
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(text, '\n'), 0)
	return err
}

// holder reads the holder of the lock. It may not be written yet, or a guest may have written invalid data.
func holder(file *os.File) *Holder {
	var h Holder
	text, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolder))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID < 1 {
		return nil
	}
	return &h
}
