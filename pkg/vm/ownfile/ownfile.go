// Package ownfile opens files in directories in which a guest, or an earlier machine, may have placed something. The
// directory itself is trusted, because it is a mount of the pod. Its content is not: no link is followed, and only a
// regular file with one name, with the owner that a file created here would get, is accepted.
package ownfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ForeignError says that something that is not the operator's own is in place of a file. errors.Is finds ErrForeign in
// it.
type ForeignError struct {
	// Path is the file.
	Path string
	// What says what it is instead: "is a symbolic link".
	What string
}

// ErrForeign is what errors.Is finds in a *ForeignError.
var ErrForeign = errors.New("not the operator's own file")

// Error names the path, what is wrong with it, and what has to be done.
func (e *ForeignError) Error() string { return e.Path + " " + e.What + " and has to be removed" }

// Is makes ErrForeign match.
func (e *ForeignError) Is(target error) bool { return target == ErrForeign }

// Open opens a regular file, and creates it if flags have os.O_CREATE. It never follows a link, never blocks on a pipe,
// and never opens a device. The error is a *ForeignError if something else is there. Pass the open file on, never its
// path, because the path may refer to another file a moment later.
func Open(path string, flags int, perm fs.FileMode) (*os.File, error) {
	directory, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer directory.Close() //nolint:errcheck // it only served to find the file
	name := filepath.Base(path)
	// Opening a device may have an effect, so its type is checked first.
	var there unix.Stat_t
	switch err := unix.Fstatat(int(directory.Fd()), name, &there, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		if err := check(path, &there, directory); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	file, err := openBeneath(directory, path, flags, perm)
	if err != nil {
		return nil, err
	}
	// The entry may have been replaced since, so the open file is checked.
	if err := unix.Fstat(int(file.Fd()), &there); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "stat", Path: path, Err: err}, file.Close())
	}
	if err := check(path, &there, directory); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Create creates a new file with a mode and replaces what is at the path: a link is removed, not followed.
func Create(path string, perm fs.FileMode) (*os.File, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	return Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
}

// Read reads a file of at most limit bytes. The error is a *ForeignError if something else is there, and fs.ErrNotExist
// if nothing is.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &ForeignError{Path: path, What: fmt.Sprintf("has more than %d bytes", limit)}
	}
	return text, nil
}

// Check checks whether a path is a file that Open would open: it returns nil, a *ForeignError, or fs.ErrNotExist.
func Check(path string) error {
	directory, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close() //nolint:errcheck // it only served to find the file
	var there unix.Stat_t
	if err := unix.Fstatat(int(directory.Fd()), filepath.Base(path), &there, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return check(path, &there, directory)
}

func openDirectory(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// openBeneath opens an entry of a directory. openat2 is newer than some seccomp profiles of container runtimes, which
// return EPERM or ENOSYS; for a name without a slash openat with O_NOFOLLOW guarantees the same.
func openBeneath(directory *os.File, path string, flags int, perm fs.FileMode) (*os.File, error) {
	name, at := filepath.Base(path), int(directory.Fd())
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS} //nolint:gosec // G115: flags are positive
	if flags&os.O_CREATE != 0 {
		how.Mode = uint64(perm.Perm())
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(at, name, &how) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		fd, err = retry(func() (int, error) { return unix.Openat(at, name, flags, uint32(perm.Perm())) })
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, &ForeignError{Path: path, What: "is a symbolic link"}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: path, Err: err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// retry repeats a system call that a signal interrupted, or that raced with a rename (openat2(2), EAGAIN).
func retry(call func() (int, error)) (int, error) {
	for {
		fd, err := call()
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			return fd, err
		}
	}
}

// check returns what a file is if it is not one of the operator's own.
func check(path string, there *unix.Stat_t, directory *os.File) error {
	if kind, ok := kinds[there.Mode&unix.S_IFMT]; !ok || kind != "" {
		return &ForeignError{Path: path, What: orUnknown(kind)}
	}
	if there.Nlink > 1 {
		// One of the other names may be that of a file of the host.
		return &ForeignError{Path: path, What: fmt.Sprintf("has %d names (hard links)", there.Nlink)}
	}
	if there.Uid != uint32(os.Geteuid()) && there.Uid != ownerHere(directory) { //nolint:gosec // G115: a user's number
		return &ForeignError{Path: path, What: fmt.Sprintf("belongs to user %d", there.Uid)}
	}
	return nil
}

// kinds describes the types of files that are rejected; the description of a regular file is empty.
var kinds = map[uint32]string{
	unix.S_IFREG: "", unix.S_IFLNK: "is a symbolic link", unix.S_IFDIR: "is a directory", unix.S_IFIFO: "is a named pipe",
	unix.S_IFSOCK: "is a socket", unix.S_IFBLK: "is a block device", unix.S_IFCHR: "is a character device",
}

func orUnknown(kind string) string {
	if kind == "" {
		return "is no regular file"
	}
	return kind
}

// ownerHere returns the owner of a file that this process creates in the directory: on NFS the server may give root's
// files to another user (exports(5), root_squash). If that cannot be determined, it is this process's own user.
func ownerHere(directory *os.File) uint32 {
	own := uint32(os.Geteuid()) //nolint:gosec // G115: a user's number
	name := fmt.Sprintf("/proc/self/fd/%d", directory.Fd())
	probe, err := os.CreateTemp(name, ".kvm-operator-owner-")
	if err != nil {
		return own
	}
	var made unix.Stat_t
	if err := unix.Fstat(int(probe.Fd()), &made); err == nil {
		own = made.Uid
	}
	_ = errors.Join(probe.Close(), os.Remove(probe.Name()))
	return own
}
