package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

const (
	// The primary superblock of ext2, ext3 and ext4 (kernel: Documentation/filesystems/ext4/super.rst).
	superblock      = 1024
	superblockMagic = 0xEF53
	magicOffset     = superblock + 0x38

	// maxLabel is the room for a label in that superblock, in bytes.
	maxLabel = 16

	// head and tail are the areas in which partition tables, volume managers and file systems have their signatures,
	// which identify them on a device that is too large to be read completely. Both are in bytes.
	head = 4 << 20
	tail = 1 << 20

	// markOffset is the distance of mark from the end of a device. mke2fs clears the last 64 KiB first.
	markOffset = 96 << 10

	chunk = 1 << 20
)

// mark is on a block device while a file system is being created on it.
var mark = []byte("A file system is being made here by kvm-operator. Everything on this device may be discarded.\n")

// ErrHoldsData is returned by Format for a disk that is neither empty nor an ext4 file system.
var ErrHoldsData = errors.New("it holds data and is not formatted")

// Format creates an ext4 file system with a label of at most 16 bytes on an empty raw image or block device. If it
// already has ext4, 3 or 2, nothing is changed; if it contains anything else, it is rejected with ErrHoldsData. Every
// byte of an image is checked; of a device the first 4 MiB and the last 1 MiB.
//
// An image is formatted atomically. On a device, an interrupted format is recognized and repeated. A link to an image
// is rejected, because a guest may have created it. Needs mkfs.ext4 in the path.
func Format(ctx context.Context, path, label string) error {
	if len(label) > maxLabel {
		return fmt.Errorf("formatting %s: label %q has more than %d bytes", path, label, maxLabel)
	}
	device, err := isDeviceNode(path)
	if err != nil {
		return fmt.Errorf("formatting disk: %w", err)
	}
	open, format := ownfile.Open, formatImage
	if device {
		open, format = os.OpenFile, formatDevice
	}
	file, err := open(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("formatting disk: %w", err)
	}
	if err = errors.Join(format(ctx, file, label), file.Close()); err != nil {
		return fmt.Errorf("formatting %s: %w", path, err)
	}
	return nil
}

// formatImage creates the file system in a new file, which then replaces the empty one.
func formatImage(ctx context.Context, file *os.File, label string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if done, err := isExt(file); done || err != nil {
		return err
	}
	for extent, err := range extents(file, info.Size()) {
		if err != nil {
			return err
		}
		if err := requireZeros(ctx, file, extent); err != nil {
			return err
		}
	}
	path := file.Name() + ".formatting"
	if err := makeImage(ctx, path, info, label); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err := os.Rename(path, file.Name()); err != nil {
		return err
	}
	return SyncDirectory(filepath.Dir(path))
}

func makeImage(ctx context.Context, path string, like os.FileInfo, label string) error {
	file, err := ownfile.Create(path, like.Mode().Perm())
	if err != nil {
		return ExplainFull(filepath.Dir(path), metadata(like.Size()), err)
	}
	err = file.Truncate(like.Size())
	if err == nil {
		// A new file is all zeros, so nothing has to be cleared, now or by the guest's kernel in the background.
		err = mkfs(ctx, file, label, "lazy_itable_init=1,lazy_journal_init=1")
	}
	if err == nil {
		err = file.Sync()
	}
	return ExplainFull(path, metadata(like.Size()), errors.Join(err, file.Close()))
}

// formatDevice writes a mark before it begins. mke2fs writes the superblock last; if it is interrupted before that, the
// mark shows that what it wrote may be overwritten. Discarding the device would also discard the mark.
func formatDevice(ctx context.Context, file *os.File, label string) error {
	if done, err := isExt(file); done || err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size < head+tail {
		return fmt.Errorf("%d bytes are too few", size)
	}
	if !isMarked(file, size) {
		for _, e := range []extent{{0, head}, {size - tail, size}} {
			if err := requireZeros(ctx, file, e); err != nil {
				return err
			}
		}
	}
	if err := writeThrough(file, mark, size-markOffset); err != nil {
		return err
	}
	if err := mkfs(ctx, file, label, "nodiscard,lazy_itable_init=1"); err != nil {
		return err
	}
	if !isMarked(file, size) {
		return nil
	}
	return writeThrough(file, make([]byte, len(mark)), size-markOffset)
}

func isMarked(file *os.File, size int64) bool {
	there := make([]byte, len(mark))
	_, err := file.ReadAt(there, size-markOffset)
	return err == nil && bytes.Equal(there, mark)
}

func writeThrough(file *os.File, data []byte, offset int64) error {
	if _, err := file.WriteAt(data, offset); err != nil {
		return err
	}
	return file.Sync()
}

func isExt(file *os.File) (bool, error) {
	var magic [2]byte
	if _, err := file.ReadAt(magic[:], magicOffset); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return binary.LittleEndian.Uint16(magic[:]) == superblockMagic, nil
}

// extent is a part of a file, from begin to before end, in bytes.
type extent struct{ begin, end int64 }

// extents yields the parts of a file that are not holes (lseek(2), SEEK_DATA). All others read as zeros.
func extents(file *os.File, size int64) iter.Seq2[extent, error] {
	return func(yield func(extent, error) bool) {
		for offset := int64(0); offset < size; {
			next, err := nextExtent(file, offset, size)
			if errors.Is(err, syscall.ENXIO) || !yield(next, err) || err != nil {
				return
			}
			offset = next.end
		}
	}
}

// nextExtent fails with ENXIO after the last extent.
func nextExtent(file *os.File, offset, size int64) (extent, error) {
	begin, err := file.Seek(offset, unix.SEEK_DATA)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
		return extent{offset, size}, nil // the file system does not support holes
	}
	if err != nil {
		return extent{}, err
	}
	end, err := file.Seek(begin, unix.SEEK_HOLE)
	return extent{begin, min(end, size)}, err
}

func requireZeros(ctx context.Context, file *os.File, e extent) error {
	buffer, zeros := make([]byte, chunk), make([]byte, chunk)
	for offset := e.begin; offset < e.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := file.ReadAt(buffer[:min(chunk, e.end-offset)], offset)
		if !bytes.Equal(buffer[:n], zeros[:n]) {
			return ErrHoldsData
		}
		if err != nil {
			return err
		}
		offset += int64(n)
	}
	return nil
}

// ImageOf creates a raw image of size bytes with an ext4 file system that has the content of a directory, with its
// owners and modes. It replaces what is at the path; the image is on disk when ImageOf returns. Needs mkfs.ext4 in the
// path.
func ImageOf(ctx context.Context, path string, size int64, directory string) error {
	file, err := ownfile.Create(path, 0o600)
	if err != nil {
		return ExplainFull(filepath.Dir(path), metadata(size), fmt.Errorf("making disk: %w", err))
	}
	if err = file.Truncate(size); err == nil {
		err = mkfs(ctx, file, "", "lazy_itable_init=1,lazy_journal_init=1", "-d", directory)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = SyncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return ExplainFull(filepath.Dir(path), metadata(size), fmt.Errorf("making disk %s of %s: %w", path, directory, err))
	}
	return nil
}

// mkfs formats an open file. mkfs.ext4 finds it by its file descriptor, so that replacing the file under its name
// meanwhile has no effect.
func mkfs(ctx context.Context, file *os.File, label, options string, more ...string) error {
	arguments := append([]string{"-q", "-F", "-L", label, "-E", options}, more...)
	command := exec.CommandContext(ctx, "mkfs.ext4", append(arguments, "/proc/self/fd/3")...)
	command.ExtraFiles = []*os.File{file}
	command.Env = append(os.Environ(), "LC_ALL=C")
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("mkfs.ext4: %w", context.Cause(ctx))
	}
	if strings.Contains(string(output), syscall.ENOSPC.Error()) || strings.Contains(string(output), "No space left") {
		err = errors.Join(err, syscall.ENOSPC)
	}
	return fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(output))
}
