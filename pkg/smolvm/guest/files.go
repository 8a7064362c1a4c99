package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// ReadFile writes a regular file of at most agentwire.MaxFile bytes to out.
func (r *Root) ReadFile(ctx context.Context, name string, out io.Writer) (int64, error) {
	name, err := absolute(name)
	if err != nil {
		return 0, err
	}
	file, err := r.regular(name)
	if err != nil {
		return 0, explained(err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	defer context.AfterFunc(ctx, func() { _ = file.Close() })()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	n, err := int64(0), error(nil)
	if info.Size() <= agentwire.MaxFile {
		n, err = io.Copy(out, io.LimitReader(patient{file}, agentwire.MaxFile+1))
	}
	if n > agentwire.MaxFile || info.Size() > agentwire.MaxFile {
		return 0, agentwire.Errorf(agentwire.CodeTooLarge, "it has more than %d bytes", agentwire.MaxFile)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return n, explained(err)
}

// WriteFile writes a file beside its place, and then puts it there. Nothing is left of it if it fails.
func (r *Root) WriteFile(ctx context.Context, name string, mode fs.FileMode, in io.Reader) (int64, error) {
	name, err := absolute(name)
	if err != nil {
		return 0, err
	}
	if name == "/" {
		return 0, agentwire.Errorf(agentwire.CodeIsDirectory, "it is a directory")
	}
	parent, err := r.directoryAt(path.Dir(name))
	if err != nil {
		return 0, explained(err)
	}
	defer parent.Close() //nolint:errcheck // it was only read
	n, err := writeAt(ctx, parent, path.Base(name), mode, in)
	return n, explained(err)
}

func writeAt(ctx context.Context, parent *os.File, name string, mode fs.FileMode, in io.Reader) (n int64, err error) {
	old, err := owned(parent, name)
	if err != nil {
		return 0, err
	}
	if mode == 0 {
		mode = fs.FileMode(old.Mode).Perm()
	}
	at, temporary := int(parent.Fd()), ".smolvm-"+rand.Text()
	fd, err := unix.Openat(at, temporary, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	file := os.NewFile(uintptr(fd), temporary)
	defer func() {
		_ = file.Close() // it was synced
		if err != nil {
			_ = unix.Unlinkat(at, temporary, 0) // the first error says enough
		}
	}()
	if n, err = io.Copy(file, io.LimitReader(in, agentwire.MaxFile+1)); err != nil {
		return 0, err
	}
	if n > agentwire.MaxFile {
		return 0, agentwire.Errorf(agentwire.CodeTooLarge, "it has more than %d bytes", agentwire.MaxFile)
	}
	if err := errors.Join(context.Cause(ctx), file.Chown(int(old.Uid), int(old.Gid)), file.Chmod(mode), file.Sync()); err != nil {
		return 0, err
	}
	err = unix.Renameat(at, temporary, at, name)
	if errors.Is(err, unix.EBUSY) { // something is mounted there, such as /etc/hosts
		err = errors.Join(overwrite(parent, name, file), unix.Unlinkat(at, temporary, 0))
	}
	return n, errors.Join(err, parent.Sync())
}

// owned returns the attributes of the file that is replaced, or of a new one.
func owned(parent *os.File, name string) (unix.Stat_t, error) {
	var old unix.Stat_t
	err := unix.Fstatat(int(parent.Fd()), name, &old, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil && old.Mode&unix.S_IFMT == unix.S_IFDIR:
		return old, agentwire.Errorf(agentwire.CodeIsDirectory, "it is a directory")
	case err == nil && old.Mode&unix.S_IFMT == unix.S_IFREG:
		return old, nil
	case err != nil && !errors.Is(err, unix.ENOENT):
		return old, err
	}
	return unix.Stat_t{Mode: 0o644}, nil
}

// overwrite copies a file over the content of another one.
func overwrite(parent *os.File, name string, from *os.File) error {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), name)
	if _, err = from.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(to, from)
	}
	return errors.Join(err, to.Sync(), to.Close())
}

// explained gives the kernel's errors their codes.
func explained(err error) error {
	codes := map[error]agentwire.Code{
		unix.ENOENT: agentwire.CodeNotFound, unix.EISDIR: agentwire.CodeIsDirectory, unix.ENOTDIR: agentwire.CodeInvalid,
		unix.ELOOP: agentwire.CodeInvalid, unix.ENAMETOOLONG: agentwire.CodeInvalid, unix.ENOSPC: agentwire.CodeNoSpace,
		unix.EDQUOT: agentwire.CodeNoSpace, unix.EFBIG: agentwire.CodeTooLarge, os.ErrDeadlineExceeded: agentwire.CodeNotFile,
	}
	for number, code := range codes {
		if errors.Is(err, number) {
			return agentwire.Errorf(code, "%s", err)
		}
	}
	return err
}
