package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// placed is what a guest may place under a name that the runner uses, and the resulting error. target is a file of the
// host.
var placed = map[string]struct {
	place func(target, path string) error
	says  string
}{
	"a symbolic link":    {os.Symlink, "symbolic link"},
	"a dangling link":    {func(target, path string) error { return os.Symlink(target+".missing", path) }, "symbolic link"},
	"a hard link":        {os.Link, "2 names"},
	"a directory":        {func(_, path string) error { return os.Mkdir(path, 0o700) }, "directory"},
	"a character device": {func(_, path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, "character device"},
	"a block device":     {func(_, path string) error { return unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) }, "block device"},
	"a named pipe":       {func(_, path string) error { return unix.Mkfifo(path, 0o600) }, "named pipe"},
	"a socket":           {func(_, path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, "socket"},
	"a file of another user": {func(_, path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, 0))
	}, "user 12345"},
}

// foreign creates a directory with a foreign entry under a name, and returns the path and the file of the host.
func foreign(t *testing.T, place func(target, path string) error) (path, target string) {
	t.Helper()
	directory := t.TempDir()
	path, target = filepath.Join(directory, "share", "name"), filepath.Join(directory, "host")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(target, []byte("the host's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := place(target, path); errors.Is(err, fs.ErrPermission) {
		t.Skip("it takes root to place this: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return path, target
}

func untouched(t *testing.T, target string) {
	t.Helper()
	if text, err := os.ReadFile(target); err != nil || string(text) != "the host's" {
		t.Errorf("the file of the host is %q, %v", text, err)
	}
	if _, err := os.Lstat(target + ".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the host was made: %v", err)
	}
}

func TestForeignThingsAreRefused(t *testing.T) {
	for name, c := range placed {
		t.Run(name, func(t *testing.T) {
			path, target := foreign(t, c.place)
			var foreignError *ForeignError
			for what, try := range map[string]func() error{
				"opening to read":   func() error { return opened(Open(path, os.O_RDONLY, 0)) },
				"opening to write":  func() error { return opened(Open(path, os.O_RDWR|os.O_CREATE, 0o600)) },
				"opening to empty":  func() error { return opened(Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)) },
				"reading":           func() error { _, err := Read(path, 100); return err },
				"looking, unopened": func() error { return Check(path) },
			} {
				if err := try(); !errors.As(err, &foreignError) || !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want %q", what, err, c.says)
				}
			}
			untouched(t, target)
		})
	}
}

func opened(file *os.File, err error) error {
	if err == nil {
		_ = file.Close()
	}
	return err
}

func TestNewFileTakesThePlaceOfForeignThings(t *testing.T) {
	for name, c := range placed {
		t.Run(name, func(t *testing.T) {
			path, target := foreign(t, c.place)
			file, err := Create(path, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString("new"); errors.Join(err, file.Close()) != nil {
				t.Fatal(err)
			}
			if text, err := Read(path, 3); err != nil || string(text) != "new" {
				t.Errorf("there is %q, %v", text, err)
			}
			untouched(t, target)
		})
	}
}

func TestWhatIsReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Read(path, 1); !errors.Is(err, fs.ErrNotExist) || !errors.Is(Check(path), fs.ErrNotExist) {
		t.Errorf("a missing file is %v", err)
	}
	if err := os.WriteFile(path, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path, 4); err != nil || string(text) != "four" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(path, 3); !errors.Is(err, ErrForeign) {
		t.Errorf("error %v", err)
	}
}

// A file that QEMU gets must not return EAGAIN, as one that is opened with O_NONBLOCK may.
func TestFileBlocksOnceItIsOpen(t *testing.T) {
	file, err := Create(filepath.Join(t.TempDir(), "file"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
