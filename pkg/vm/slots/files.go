package slots

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Stamp changes whenever a file does: every write and every replacement changes one of its parts. Programs cannot set
// the change time.
type Stamp struct {
	// Size is in bytes.
	Size int64 `json:"size"`
	// Inode is the file's number in its file system.
	Inode uint64 `json:"inode"`
	// Modified and Changed are in nanoseconds since 1970.
	Modified int64 `json:"modified"`
	Changed  int64 `json:"changed"`
}

// StampOf returns the stamp of a regular file.
func StampOf(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, err
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return Stamp{}, fmt.Errorf("%s is no regular file", path)
	}
	return Stamp{Size: info.Size(), Inode: status.Ino, Modified: status.Mtim.Nano(), Changed: status.Ctim.Nano()}, nil
}

// Replace writes a file of a slot that appears either complete or not at all, even if the power fails. The error is a
// *disk.FullError if there is no room.
func Replace(path string, content []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return disk.ExplainFull(filepath.Dir(path), 0, err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return disk.ExplainFull(path, int64(len(content)), err)
	}
	return Rename(path+".new", path)
}

// Rename replaces path by a file that has been synced.
func Rename(from, path string) error {
	if err := os.Rename(from, path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
