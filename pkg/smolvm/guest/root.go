package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// maxAccounts bounds /etc/passwd and /etc/group of an image, in bytes.
const maxAccounts = 1 << 20

// readWait is how long a read of a file may wait.
const readWait = time.Second

// Root is the file system that the image's processes see. Its content is hostile: the image has made it, and processes
// change it at any time. The agent itself stays outside. It reaches everything by a descriptor of the root, and no link
// leads it elsewhere: neither out of the root, nor through /proc into open files of the agent.
type Root struct{ directory *os.File }

// OpenRoot opens the root at a directory.
func OpenRoot(directory string) (*Root, error) {
	file, err := os.OpenFile(directory, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the root: %w", err)
	}
	return &Root{directory: file}, nil
}

// Close closes the root.
func (r *Root) Close() error { return r.directory.Close() }

// self is the name of an open file for the kernel: of the file itself, whatever is at its path by now.
func self(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }

// open opens a path inside of the root.
func (r *Root) open(name string, flags int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS} //nolint:gosec // flags are constants
	for {
		fd, err := unix.Openat2(int(r.directory.Fd()), name, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) { // something was renamed meanwhile
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// regular opens a regular file for reading. It is inspected before it is opened, because opening a device or a pipe can
// have effects or never end.
func (r *Root) regular(name string) (*os.File, error) {
	there, err := r.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer there.Close() //nolint:errcheck // it was only inspected
	info, err := there.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, agentwire.Errorf(agentwire.CodeIsDirectory, "it is a directory")
	case !info.Mode().IsRegular():
		return nil, agentwire.Errorf(agentwire.CodeNotFile, "it is no regular file, but %s", info.Mode().Type())
	}
	return os.OpenFile(self(there), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// patient reads a file. Some files of /proc let their readers wait for news, and are given up.
type patient struct{ file *os.File }

func (p patient) Read(b []byte) (int, error) {
	_ = p.file.SetReadDeadline(time.Now().Add(readWait)) // other files have no deadlines, and do not wait
	return p.file.Read(b)
}

// small returns the content of a regular file of at most most bytes.
func (r *Root) small(name string, most int64) ([]byte, error) {
	file, err := r.regular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(patient{file}, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, err
}

// directoryAt opens a directory, and creates it with its parents if they are missing. name is absolute and clean.
func (r *Root) directoryAt(name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	found, err := r.open(name, flags)
	if !errors.Is(err, unix.ENOENT) || name == "/" {
		return found, err
	}
	parent, err := r.directoryAt(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer parent.Close() //nolint:errcheck // it was only read
	if err := unix.Mkdirat(int(parent.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return r.open(name, flags)
}

// place opens the directory of this name in a directory, for mounting on it. What else has the name there is removed: the
// image may have a link, and a mount would follow it.
func place(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at := int(parent.Fd())
	fd, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		if err := unix.Unlinkat(at, name, 0); err != nil {
			return nil, &os.PathError{Op: "unlink", Path: name, Err: err}
		}
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// absolute returns a path of a host in its shortest form.
func absolute(name string) (string, error) {
	switch {
	case !strings.HasPrefix(name, "/"):
		return "", agentwire.Errorf(agentwire.CodeInvalid, "the path is not absolute")
	case len(name) >= unix.PathMax, strings.ContainsRune(name, 0):
		return "", agentwire.Errorf(agentwire.CodeInvalid, "the path is too long or has a zero byte")
	}
	return path.Clean(name), nil
}
