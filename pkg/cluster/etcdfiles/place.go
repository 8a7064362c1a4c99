package etcdfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

const (
	// placing is the suffix of the name of what is about to replace the data, and before the suffix of what was there
	// before, followed by the token of what replaced it.
	placing = ".placing"
	before  = ".before-"
)

// ErrDevice says that etcd's data is on a block device, which cannot be kept beside its replacement.
var ErrDevice = errors.New("etcd's data is on a block device, whose data is not replaced")

// Placement is a snapshot that replaces the data of a member.
type Placement struct {
	// Volume is the directory that has the data.
	Volume string
	// Root is a directory on any file system with the data of the snapshot in its directory Data, as created by
	// `etcdutl snapshot restore`.
	Root string
	// Token distinguishes this data from what was there before.
	Token string
	// DiskSize is the size in bytes of the disk that is created for the data; 0 for a directory that the guest shares.
	DiskSize int64
}

// Place replaces the data with the snapshot and keeps the previous data beside it, until three other snapshots have
// been placed. It may be called again after it was interrupted anywhere, and does nothing once it is done, because the
// machine may have started with the data by then. It fails with a *disk.LockedError while a machine uses the volume.
func (p Placement) Place(ctx context.Context) (err error) {
	lock, err := disk.Acquire(p.Volume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if p.done() {
		return nil
	}
	store, err := Find(p.Volume, p.DiskSize > 0)
	if err != nil {
		return fmt.Errorf("checking etcd's data: %w", err)
	}
	if store.Device {
		return ErrDevice
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if store.Disk != "" {
		err = p.replace(Image, func(path string) error { return disk.ImageOf(ctx, path, p.size(store.Disk), p.Root) })
	} else if err = p.replace(Data, p.copyData); err == nil {
		err = writeThrough(filepath.Join(p.Volume, TokenFile), p.Token)
	}
	if err != nil {
		return fmt.Errorf("placing the snapshot in %s: %w", p.Volume, err)
	}
	return writeThrough(filepath.Join(p.Volume, Mark), p.Token)
}

// maxToken is larger than any token, in bytes.
const maxToken = 256

// done reports whether the mark is that of this snapshot. A file that is not the operator's own proves nothing, and is
// replaced.
func (p Placement) done() bool {
	text, err := ownfile.Read(filepath.Join(p.Volume, Mark), maxToken)
	return err == nil && strings.TrimSpace(string(text)) == p.Token
}

// prepare turns the root into what the file system of a master looks like. etcd rejects data that others may read.
func (p Placement) prepare() error {
	data := filepath.Join(p.Root, Data)
	if _, err := os.Stat(filepath.Join(data, "member")); err != nil {
		return fmt.Errorf("no data of a member of etcd: %w", err)
	}
	return errors.Join(os.Chmod(p.Root, 0o755), os.Chmod(data, 0o700), writeThrough(filepath.Join(p.Root, TokenFile), p.Token)) //nolint:gosec // the root of a file system
}

// size returns the larger of DiskSize and the size of the existing disk. Find has checked what the disk is.
func (p Placement) size(path string) int64 {
	if info, err := os.Lstat(path); err == nil {
		return max(p.DiskSize, info.Size())
	}
	return p.DiskSize
}

// replace creates the new data under another name and then, in two renames, moves the old data aside and the new data
// in its place. If something was moved aside with this token before, that is what a machine used; what is in its place
// now was never used.
func (p Placement) replace(name string, makeAt func(path string) error) error {
	path := filepath.Join(p.Volume, name)
	if err := os.RemoveAll(path + placing); err != nil {
		return err
	}
	if err := makeAt(path + placing); err != nil {
		return errors.Join(err, os.RemoveAll(path+placing))
	}
	aside := path + before + p.Token
	if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
		if err := p.putAside(path, aside); err != nil {
			return err
		}
	} else if err := errors.Join(err, os.RemoveAll(path)); err != nil {
		return err
	}
	if err := os.Rename(path+placing, path); err != nil {
		return err
	}
	return disk.SyncDirectory(p.Volume)
}

// kept is how many versions of the data that were moved aside are kept: an unfinished restore may have moved aside data
// that no machine used.
const kept = 3

// putAside moves the data aside and removes older versions.
func (p Placement) putAside(path, aside string) error {
	if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := time.Now()
	older, err := filepath.Glob(path + before + "*")
	if err = errors.Join(err, touch(aside, now)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.SortFunc(older, func(a, b string) int { return modified(b).Compare(modified(a)) })
	for _, old := range older[min(kept, len(older)):] {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	return disk.SyncDirectory(p.Volume)
}

// touch sets the times of a file, or of a link itself, because the target of a link is not the operator's.
func touch(path string, now time.Time) error {
	stamp, err := unix.TimeToTimespec(now)
	if err != nil {
		return err
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "touch", Path: path, Err: err}
	}
	return nil
}

// modified returns when a file was moved aside.
func modified(path string) time.Time {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// copyData copies the data to another file system.
func (p Placement) copyData(path string) error {
	if err := os.CopyFS(path, os.DirFS(filepath.Join(p.Root, Data))); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a directory
		return err
	}
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(directory.Fd())), directory.Close())
}

// writeThrough creates a file that is either complete and on disk or does not exist. It replaces what is at the path,
// and does not follow a link.
func writeThrough(path, text string) error {
	file, err := ownfile.Create(path+placing, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		// Only a guest makes this a directory; a file cannot be renamed over a directory.
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.Rename(path+placing, path); err != nil {
		return err
	}
	return disk.SyncDirectory(filepath.Dir(path))
}
