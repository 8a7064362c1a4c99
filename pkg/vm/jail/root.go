package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errNoNamespace says that the runner may not create a mount namespace.
var errNoNamespace = errors.New("no mount namespace")

// system is where programs and their libraries are. A link is recreated as a link. /usr itself is not included, because
// the volumes of a node pod are below it.
var system = []string{
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec", "/usr/local", "/usr/share",
	"/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin",
}

// configuration is what the dynamic linker and QEMU's own network read.
var configuration = []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/resolv.conf"}

// device is a character device that QEMU opens by its path. Without KVM it does not need that one.
type device struct {
	path   string
	mode   uint32
	needed bool
}

const kvmDevice = "/dev/kvm"

var devices = []device{
	{"/dev/null", 0o666, true}, {"/dev/zero", 0o444, false}, {"/dev/random", 0o444, false}, {"/dev/urandom", 0o444, true}, {kvmDevice, 0o600, false},
}

// rootOptions limit the size of the root directory: it contains only mount points.
const rootOptions = "mode=0755,size=1m,nr_inodes=1k"

// changeRoot gives the thread a root directory with the program, what it needs and the paths of the jail. Everything
// that is not deliberately writable is read-only, and nothing outside can be reached from it, because the old root is
// unmounted.
func (j Jail) changeRoot(program string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); errors.Is(err, unix.EPERM) {
		return errNoNamespace
	} else if err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"keeping mounts to itself", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mounting the root", func() error { return j.mountRoot() }},
		{"showing the system", func() error { return j.showSystem(program) }},
		{"making devices", j.makeDevices},
		{"showing files", j.showPaths},
		{"mounting /proc", j.mountProcesses},
		{"changing to it", j.pivot},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("making its root directory: %s: %w", step.what, err)
		}
	}
	return nil
}

func (j Jail) mountRoot() error {
	if err := os.MkdirAll(j.Directory, 0o700); err != nil {
		return err
	}
	return unix.Mount("tmpfs", j.Directory, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, rootOptions)
}

func (j Jail) inside(path string) string { return filepath.Join(j.Directory, path) }

func (j Jail) showSystem(program string) error {
	for _, path := range system {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.Mode().Type() == fs.ModeSymlink:
			err = copyLink(path, j.inside(path))
		case err == nil:
			err = j.show(Path{Name: path}, unix.MS_NOSUID|unix.MS_NODEV)
		}
		if err != nil {
			return err
		}
	}
	for _, path := range append([]string{program}, configuration...) {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if _, err := os.Lstat(j.inside(path)); err == nil {
			continue
		}
		if err := j.show(Path{Name: path}, unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return err
		}
	}
	return nil
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: the program's user walks through it
		return err
	}
	return os.Symlink(target, to)
}

func (j Jail) showPaths() error {
	for _, p := range j.Paths {
		if err := j.show(p, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	return nil
}

// show mounts a file or directory under its own path. flags are those of the mount.
func (j Jail) show(p Path, flags uintptr) error {
	info, err := os.Stat(p.Name)
	if err != nil {
		return err
	}
	target := j.inside(p.Name)
	if there, err := os.Stat(target); err == nil && os.SameFile(info, there) && p.File == nil && !p.Writable {
		return nil // it is below a directory that is shown
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // G301: the program's user walks through it
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755) //nolint:gosec // G301: a mount point
	} else {
		err = os.WriteFile(target, nil, 0o400)
	}
	if err != nil {
		return err
	}
	if err := p.bind(target); err != nil {
		return &fs.PathError{Op: "mount", Path: p.Name, Err: err}
	}
	if !p.Writable {
		flags |= unix.MS_RDONLY
	}
	// A mount that the runtime has locked keeps its flags (mount_namespaces(7)), so they have to be repeated.
	var s unix.Statfs_t
	if err := unix.Statfs(target, &s); err == nil {
		flags |= uintptr(s.Flags) & (unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_RELATIME) //nolint:gosec // G115: flags
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return &fs.PathError{Op: "remount", Path: p.Name, Err: err}
	}
	return nil
}

// bind mounts the path elsewhere. A file descriptor of another mount namespace cannot be mounted (mount(2), EINVAL), so
// the path is opened again and has to be the same file.
func (p Path) bind(target string) error {
	file, err := os.OpenFile(p.Name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if err := p.same(file); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target, "", unix.MS_BIND, "")
}

// ErrReplaced says that a path refers to another file than the one that was opened before.
var ErrReplaced = errors.New("it was replaced after it was opened")

func (p Path) same(file *os.File) error {
	if p.File == nil {
		return nil
	}
	want, err := p.File.Stat()
	if err != nil {
		return err
	}
	have, err := file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(want, have) {
		return ErrReplaced
	}
	return nil
}

// makeDevices creates separate device nodes for the program, because those of the container belong to root.
func (j Jail) makeDevices() error {
	if err := os.MkdirAll(j.inside("/dev"), 0o755); err != nil { //nolint:gosec // G301: the program's user walks through it
		return err
	}
	for _, d := range devices {
		var there unix.Stat_t
		if err := unix.Stat(d.path, &there); err != nil || there.Mode&unix.S_IFMT != unix.S_IFCHR {
			if d.needed {
				return fmt.Errorf("the runner has no device %s: %w", d.path, err)
			}
			continue
		}
		node := j.inside(d.path)
		if err := unix.Mknod(node, unix.S_IFCHR|d.mode, int(there.Rdev)); err != nil { //nolint:gosec // G115: a device's number
			return &fs.PathError{Op: "mknod", Path: d.path, Err: err}
		}
		if err := errors.Join(os.Chown(node, j.User, j.User), os.Chmod(node, fs.FileMode(d.mode))); err != nil {
			return err
		}
	}
	return nil
}

// mountProcesses shows the program only its own process, and nothing of the kernel. Both options need Linux 5.8.
func (j Jail) mountProcesses() error {
	if !j.Processes {
		return nil
	}
	if err := os.Mkdir(j.inside("/proc"), 0o555); err != nil { //nolint:gosec // G301: a mount point
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("proc", j.inside("/proc"), "proc", flags, "hidepid=2,subset=pid")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("proc", j.inside("/proc"), "proc", flags, "hidepid=2")
	}
	return err
}

// pivot makes the directory the thread's root (pivot_root(2), "pivot_root(".", ".")").
func (j Jail) pivot() error {
	if err := unix.Mount("", j.Directory, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_RDONLY, rootOptions); err != nil {
		return err
	}
	if err := unix.Chdir(j.Directory); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}
