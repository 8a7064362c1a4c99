package guest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// Directories of the initial file system on which disks are mounted.
const (
	lowerAt   = "/disks/root"
	overlayAt = "/disks/overlay"
	storageAt = "/disks/storage"
	mergedAt  = "/disks/merged"
	ownFiles  = "/disks/files"
)

// resizeExt4 is EXT4_IOC_RESIZE_FS (fs/ext4/ext4.h): _IOW('f', 16, __u64), the new number of blocks.
const resizeExt4 = 0x40086610

const quietly = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountKernel mounts what the agent itself needs.
func mountKernel() error {
	for _, m := range []struct {
		kind  string
		at    string
		flags uintptr
	}{{"proc", "/proc", quietly}, {"sysfs", "/sys", quietly}, {"devtmpfs", "/dev", unix.MS_NOSUID}} {
		if err := mount(m.kind, m.at, m.kind, m.flags, ""); err != nil {
			return err
		}
	}
	return nil
}

// mount mounts on a directory of the initial file system, and creates it.
func mount(source, at, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // only the agent sees it
		return err
	}
	if err := unix.Mount(source, at, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", kind, at, err)
	}
	return nil
}

// disks are the machine's disks, mounted.
type disks struct {
	grown []string
	// root is closed before they are unmounted.
	root *Root
}

// mountDisks mounts the disks and makes the root of them.
func mountDisks() (*disks, error) {
	d := &disks{}
	for _, disk := range []struct {
		serial, at, kind string
		flags            uintptr
	}{
		{agentwire.DiskRoot, lowerAt, "squashfs", unix.MS_RDONLY},
		{agentwire.DiskOverlay, overlayAt, "ext4", 0},
		{agentwire.DiskStorage, storageAt, "ext4", 0},
	} {
		device, err := findBySerial(disk.serial)
		if err != nil {
			return nil, err
		}
		if err := mount(device, disk.at, disk.kind, disk.flags, ""); err != nil {
			return nil, fmt.Errorf("disk %s: %w", disk.serial, err)
		}
		if disk.kind != "ext4" {
			continue
		}
		grown, err := grow(device, disk.at)
		if err != nil {
			return nil, fmt.Errorf("growing the file system of disk %s: %w", disk.serial, err)
		}
		if grown {
			d.grown = append(d.grown, disk.serial)
		}
	}
	for _, name := range []string{"upper", "work"} {
		if err := os.MkdirAll(overlayAt+"/"+name, 0o755); err != nil { //nolint:gosec // upper has the mode of the root
			return nil, err
		}
	}
	return d, mount("overlay", mergedAt, "overlay", 0, "lowerdir="+lowerAt+",upperdir="+overlayAt+"/upper,workdir="+overlayAt+"/work")
}

// grow grows a mounted ext4 file system to the size of its disk. It reports whether it was smaller.
func grow(device, at string) (bool, error) {
	disk, err := os.Open(device)
	if err != nil {
		return false, err
	}
	size, err := disk.Seek(0, io.SeekEnd)
	if err := errors.Join(err, disk.Close()); err != nil {
		return false, err
	}
	var before, after unix.Statfs_t
	if err := unix.Statfs(at, &before); err != nil {
		return false, err
	}
	top, err := os.Open(at)
	if err != nil {
		return false, err
	}
	defer top.Close()                     //nolint:errcheck // it was only read
	blocks := uint64(size / before.Bsize) //nolint:gosec // both are positive
	//nolint:gosec // the kernel reads eight bytes there
	if _, _, number := unix.Syscall(unix.SYS_IOCTL, top.Fd(), resizeExt4, uintptr(unsafe.Pointer(&blocks))); number != 0 {
		return false, number
	}
	if err := unix.Statfs(at, &after); err != nil {
		return false, err
	}
	return after.Blocks > before.Blocks, nil
}

// enterRoot mounts the rest in the merged root, and makes it the root of the mount namespace, so that its processes are in
// no chroot, in which they could not have user namespaces. The agent stays in the initial file system below.
func (d *disks) enterRoot(config agentwire.Config) (*Root, error) {
	root, err := OpenRoot(mergedAt)
	if err != nil {
		return nil, err
	}
	if err := furnish(root, config); err != nil {
		return nil, fmt.Errorf("making the image's root: %w", err)
	}
	if err := unix.Mount(mergedAt, "/", "", unix.MS_MOVE, ""); err != nil {
		return nil, fmt.Errorf("moving the image's root: %w", err)
	}
	return root, nil
}

// furnish mounts what processes expect in a root.
func furnish(root *Root, config agentwire.Config) error {
	top, err := root.open("/", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer top.Close() //nolint:errcheck // it was only read
	for _, m := range []struct {
		parents          []string
		name, kind, data string
		flags            uintptr
		source           string
	}{
		{name: "proc", kind: "proc", flags: quietly},
		{name: "sys", kind: "sysfs", flags: quietly},
		{parents: []string{"sys", "fs"}, name: "cgroup", kind: "cgroup2", flags: quietly},
		{name: "dev", kind: "devtmpfs", flags: unix.MS_NOSUID},
		{parents: []string{"dev"}, name: "pts", kind: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "ptmxmode=0666,mode=0620,gid=5"},
		{parents: []string{"dev"}, name: "shm", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{name: "tmp", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{name: "run", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=0755"},
		{name: "storage", source: storageAt, flags: unix.MS_BIND},
	} {
		if err := mountIn(top, m.parents, m.name, cmp.Or(m.source, m.kind), m.kind, m.flags, m.data); err != nil {
			return err
		}
	}
	if err := deviceLinks(); err != nil {
		return err
	}
	if err := bindWorkspace(top); err != nil {
		return err
	}
	return bindOwnFiles(root, config)
}

// mountIn mounts on a directory below an open one. The parents are mounts of the agent's own by then.
func mountIn(top *os.File, parents []string, name, source, kind string, flags uintptr, data string) error {
	at := top
	for _, parent := range append(parents, name) {
		next, err := place(at, parent)
		if err != nil {
			return err
		}
		defer next.Close() //nolint:errcheck // it was only inspected
		at = next
	}
	if err := unix.Mount(source, self(at), kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", kind, name, err)
	}
	return nil
}

// deviceLinks makes the usual links in /dev, which the agent shares with the root.
func deviceLinks() error {
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, "/dev/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// bindWorkspace mounts the workspace of the storage disk, which the machine has written in earlier boots.
func bindWorkspace(top *os.File) error {
	storage, err := os.Open(storageAt)
	if err != nil {
		return err
	}
	defer storage.Close() //nolint:errcheck // it was only read
	workspace, err := place(storage, "workspace")
	if err != nil {
		return err
	}
	defer workspace.Close() //nolint:errcheck // it was only inspected
	return mountIn(top, nil, "workspace", self(workspace), "", unix.MS_BIND, "")
}

// unmount releases the disks. Processes of the root have ended. What is still in use is made read-only.
func (d *disks) unmount() error {
	err := unix.Unmount(self(d.root.directory), unix.MNT_DETACH)
	err = errors.Join(err, d.root.Close())
	for _, at := range []string{storageAt, overlayAt} {
		if unix.Unmount(at, 0) == nil {
			continue
		}
		if e := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); e != nil {
			err = errors.Join(err, fmt.Errorf("unmounting %s: %w", at, e))
		}
	}
	return err
}
