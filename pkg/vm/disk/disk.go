// Package disk creates, formats and locks the disks of a virtual machine: raw images in a directory, block devices, and
// directories that a guest mounts.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// sector is the unit in which a guest sees a disk, in bytes.
const sector = 512

// ErrShrink is returned by Create for a disk that is larger than requested.
var ErrShrink = errors.New("a disk is never shrunk")

// Create creates a raw image of size bytes, rounded up to whole sectors of 512 bytes. It takes no space until it is
// written to. An existing image keeps its data: it is grown if it is smaller, and rejected with ErrShrink if it is
// larger. A block device has to have at least the requested size.
//
// A crash at any moment leaves nothing, or an image that the next call grows. A *FullError says that the file system
// could not hold the image even while it is empty.
func Create(path string, size int64) error {
	file, err := Open(path, size)
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	return err
}

// Open does the same as Create, and returns the disk, open for reading and writing. An image that is larger than
// requested is returned together with ErrShrink. Open opens only an image that is the operator's own file, never the
// target of a link: pass on the open file, not the path. A block device is opened if the path is its device node.
func Open(path string, size int64) (*os.File, error) {
	if size < 1 || size > maxSize {
		return nil, fmt.Errorf("making disk %s: the size of %d bytes is out of range", path, size)
	}
	size = (size + sector - 1) / sector * sector
	if device, err := isDeviceNode(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("making disk: %w", err)
	} else if device {
		return openDevice(path, size)
	}
	file, err := ownfile.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, ExplainFull(path, metadata(size), fmt.Errorf("making disk: %w", err))
	}
	err = grow(file, size)
	if err == nil {
		err = SyncDirectory(filepath.Dir(path))
	}
	if err != nil && !errors.Is(err, ErrShrink) {
		return nil, errors.Join(err, file.Close())
	}
	return file, err
}

func openDevice(path string, size int64) (*os.File, error) {
	if err := requireSize(path, size); err != nil {
		return nil, err
	}
	return openNode(path, 0)
}

// OpenDevice opens a block device that was given to the pod, for reading and writing past the host's page cache. QEMU 9.1
// and newer accept a file descriptor for a disk with cache.direct only if it has O_DIRECT, and for another disk only if
// it does not.
func OpenDevice(path string) (*os.File, error) { return openNode(path, syscall.O_DIRECT) }

func openNode(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.Mode().Type() != fs.ModeDevice {
		return nil, errors.Join(fmt.Errorf("%s is no block device", path), err, file.Close())
	}
	return file, nil
}

// isDeviceNode reports whether the path itself is a block device. A link to one does not count, because a guest may
// have created it.
func isDeviceNode(path string) (bool, error) {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeDevice, err
}

func grow(file *os.File, size int64) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("making disk: %w", err)
	case info.Size() > size:
		return fmt.Errorf("disk %s has %d bytes and is to have %d: %w", file.Name(), info.Size(), size, ErrShrink)
	case info.Size() == size:
		return nil
	}
	if err := extend(file, size); err != nil {
		// An empty image contains no data that could be lost.
		if info.Size() == 0 {
			_ = os.Remove(file.Name())
		}
		return err
	}
	return nil
}

func extend(file *os.File, size int64) error {
	needed := metadata(size)
	if free, err := Free(file.Name()); err == nil && free < needed {
		return &FullError{Path: file.Name(), Needed: needed, Free: free}
	}
	if err := file.Truncate(size); err != nil {
		return ExplainFull(file.Name(), needed, fmt.Errorf("making disk: %w", err))
	}
	if err := file.Sync(); err != nil {
		return ExplainFull(file.Name(), needed, fmt.Errorf("storing disk: %w", err))
	}
	return nil
}

// metadata returns about how much ext4 writes to an empty image of size bytes: mke2fs 1.47 was seen to write 0.7 MB to
// 1 GiB, 5 MB to 50 GiB and 10 MB to 500 GiB.
func metadata(size int64) int64 { return 4<<20 + size/4096 }

func requireSize(path string, size int64) error {
	have, err := Size(path)
	if err == nil && have < size {
		err = fmt.Errorf("block device %s has %d bytes and has to have %d", path, have, size)
	}
	return err
}

// IsBlockDevice reports whether path is a block device, or a link to one.
func IsBlockDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode().Type() == fs.ModeDevice, nil
}

// Size returns the size in bytes of the raw image or block device, as a guest sees it.
func Size(path string) (int64, error) {
	// O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("finding the size of %s: %w", path, err)
	}
	return size, nil
}

// SyncDirectory makes the entries of a directory survive a power failure.
func SyncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
