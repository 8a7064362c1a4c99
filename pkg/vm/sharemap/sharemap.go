// Package sharemap converts a directory that a guest shares over 9p to the form in which a QEMU that is not root serves
// it: every file belongs to QEMU's user, and what the guest sees as owner, mode and type is in extended attributes
// (QEMU: security_model=mapped-xattr, hw/9pfs/9p-local.c). Directories of earlier machines contain files of any owner,
// which such a QEMU could not read.
package sharemap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnsupported says that the file system has no extended user attributes (xattr(7)).
var ErrUnsupported = errors.New("its file system has no extended attributes")

// Attributes of QEMU, in little-endian byte order.
const (
	attributeUser   = "user.virtfs.uid"
	attributeGroup  = "user.virtfs.gid"
	attributeMode   = "user.virtfs.mode"
	attributeDevice = "user.virtfs.rdev"
)

// Modes are those that QEMU gives to files and directories that a guest creates.
const (
	modeOfFile      = 0o600
	modeOfDirectory = 0o700
)

// maxLink bounds the target of a symbolic link (PATH_MAX).
const maxLink = 4096

// Share is a directory that a guest shares.
type Share struct {
	// Directory is its path. It is locked, so that nothing else uses it meanwhile.
	Directory string
	// User is the number of QEMU's user and group.
	User int
	// Except are names in the directory itself that are not changed: files of the runner.
	Except []string
	// Whole checks every file even if the directory itself already belongs to QEMU's user, because not only the guest
	// writes there.
	Whole bool
}

// Convert converts what does not belong to QEMU's user. The directory itself comes last, so that an interrupted
// conversion continues the next time. Symbolic links are never followed. The error is ErrUnsupported before anything
// was changed.
func (s Share) Convert() error {
	root, err := os.OpenRoot(s.Directory)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	if err := supported(root); err != nil {
		return err
	}
	info, err := root.Lstat(".")
	if err != nil {
		return err
	}
	if s.owns(info) && !s.Whole {
		return nil
	}
	if err := s.convertEntries(root, "."); err != nil {
		return fmt.Errorf("preparing the share %s: %w", s.Directory, err)
	}
	return s.convert(root, ".", info)
}

// supported tries to set an attribute that has no meaning.
func supported(root *os.Root) error {
	directory, err := root.Open(".")
	if err != nil {
		return err
	}
	defer directory.Close() //nolint:errcheck // nothing was written
	const probe = "user.kvm-operator.probe"
	err = unix.Fsetxattr(int(directory.Fd()), probe, []byte("1"), 0)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("setting an attribute: %w", err)
	}
	return unix.Fremovexattr(int(directory.Fd()), probe)
}

func (s Share) owns(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == uint32(s.User) //nolint:gosec // G115: a user's number
}

// convertEntries converts the content of a directory, the deepest entries first.
func (s Share) convertEntries(root *os.Root, name string) error {
	directory, err := root.Open(name)
	if err != nil {
		return err
	}
	entries, err := directory.ReadDir(-1)
	if err = errors.Join(err, directory.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		if name == "." && slices.Contains(s.Except, e.Name()) {
			continue
		}
		if err := s.convertEntry(root, path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (s Share) convertEntry(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := s.convertEntries(root, name); err != nil {
			return err
		}
	}
	if s.owns(info) {
		return nil
	}
	if info.Mode().IsRegular() || info.IsDir() {
		return s.convert(root, name, info)
	}
	return s.replace(root, name, info)
}

// convert records owner and mode of a file or directory, and gives it to QEMU's user. The owner is changed last,
// because it shows what is done.
func (s Share) convert(root *os.Root, name string, info fs.FileInfo) error {
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return &fs.PathError{Op: "convert", Path: name, Err: errors.New("it was replaced meanwhile")}
	}
	return s.give(file, info)
}

// give gives an open file to QEMU's user, with attributes that contain what info says.
func (s Share) give(file *os.File, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("the system says nothing of its owner")
	}
	attributes := []struct {
		name  string
		value []byte
	}{
		{attributeUser, little32(stat.Uid)}, {attributeGroup, little32(stat.Gid)}, {attributeMode, little32(stat.Mode)},
	}
	if info.Mode().Type()&fs.ModeDevice != 0 {
		attributes = append(attributes, struct {
			name  string
			value []byte
		}{attributeDevice, binary.LittleEndian.AppendUint64(nil, stat.Rdev)})
	}
	for _, a := range attributes {
		if err := unix.Fsetxattr(int(file.Fd()), a.name, a.value, 0); err != nil {
			return &fs.PathError{Op: "setxattr", Path: file.Name(), Err: err}
		}
	}
	mode := fs.FileMode(modeOfFile)
	if info.IsDir() {
		mode = modeOfDirectory
	}
	return errors.Join(file.Chmod(mode), file.Chown(s.User, s.User))
}

func little32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// replace replaces a link, device, pipe or socket by a regular file, because QEMU stores them as such. A link's target
// is its content.
func (s Share) replace(root *os.Root, name string, info fs.FileInfo) error {
	content := ""
	if info.Mode().Type() == fs.ModeSymlink {
		var err error
		if content, err = root.Readlink(name); err != nil {
			return err
		}
		if len(content) > maxLink {
			return &fs.PathError{Op: "convert", Path: name, Err: unix.ENAMETOOLONG}
		}
	}
	temporary := path.Join(path.Dir(name), ".kvm-operator.converting")
	if err := root.RemoveAll(temporary); err != nil {
		return err
	}
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeOfFile)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, s.give(file, info), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return root.Rename(temporary, name)
}
