package realcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ownTrees are the directories of which a node has a private view: it sees this machine's files, and its changes are
// private and stored in its state directory.
var ownTrees = []string{"/home", "/var/lib", "/var/log"}

// ownDirectories are the directories of a node for containers' file systems, which must be on a real file system.
var ownDirectories = map[string]string{"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet"}

// tunables are settings of the whole machine that every kubelet changes. A node changes its own copy.
var tunables = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// mount creates the node's mounts from a copy of this machine's.
func (n *Node) mount() error {
	if err := n.namespaces.Inside(n.mountTrees); err != nil {
		return err
	}
	// The processes that it shows depend on the PID namespace of the process that mounts it.
	command := exec.Command("mount", "-t", "proc", "proc", "/proc")
	if output, err := combined(n.namespaces.Run, command); err != nil {
		return fmt.Errorf("mounting /proc: %w\n%s", err, output)
	}
	return n.namespaces.Inside(n.mountTunables)
}

func (n *Node) mountTrees() error {
	// This comes first, so that no mount propagates to this machine. At the end, pods may propagate mounts to each
	// other.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separating the mounts of %s: %w", n.Name(), err)
	}
	back, err := keep(append([]string{n.cluster.options.Dir}, n.cluster.options.HostPaths...))
	if err != nil {
		return err
	}
	for _, tree := range ownTrees {
		if err := n.mountOwnTree(tree); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	if err := back(); err != nil {
		return err
	}
	if err := errors.Join(n.mountOwnDirectories(), n.mountResolver(), unix.Sethostname([]byte(n.Name()))); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

// keep opens directories in their current state. back mounts them over whatever has been mounted there since then.
func keep(paths []string) (back func() error, err error) {
	descriptors := map[string]int{}
	for _, path := range paths {
		descriptor, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, fmt.Errorf("taking hold of %s: %w", path, err)
		}
		descriptors[path] = descriptor
	}
	return func() error {
		var errs []error
		for path, descriptor := range descriptors {
			if err := errors.Join(os.MkdirAll(path, 0o755), unix.MoveMount(descriptor, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)); err != nil {
				errs = append(errs, fmt.Errorf("mounting %s: %w", path, err))
			}
			errs = append(errs, unix.Close(descriptor))
		}
		return errors.Join(errs...)
	}, nil
}

func (n *Node) mountOwnTree(tree string) error {
	if _, err := os.Stat(tree); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	upper, work := filepath.Join(n.treePath(tree), "upper"), filepath.Join(n.treePath(tree), "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", tree, upper, work)
	if err := unix.Mount("overlay", tree, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting an overlay on %s: %w (Options.Dir must be on a file system that overlayfs can write to, such as ext4 or xfs)", tree, err)
	}
	return nil
}

func (n *Node) mountOwnDirectories() error {
	for name, target := range ownDirectories {
		source := filepath.Join(n.dir(), name)
		if err := errors.Join(os.MkdirAll(source, 0o755), os.MkdirAll(target, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", target, err)
		}
	}
	return nil
}

// mountResolver makes the node's programs use the cluster's DNS.
func (n *Node) mountResolver() error {
	target := "/etc/resolv.conf"
	if link, err := os.Readlink(target); err == nil {
		if target = link; !filepath.IsAbs(link) {
			target = filepath.Join("/etc", link)
		}
		// It usually refers to /run, which is the node's own and empty.
		if err := makeFile(target); err != nil {
			return err
		}
	}
	own := n.path("resolv.conf")
	if err := os.WriteFile(own, []byte("nameserver "+siteAddress.String()+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(own, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// makeFile creates an empty file if it does not exist.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func (n *Node) mountTunables() error {
	for _, name := range tunables {
		path := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		own := filepath.Join("/run/tunables", strings.ReplaceAll(name, "/", "-"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o755), os.WriteFile(own, value, 0o644)); err != nil {
			return err
		}
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
	}
	return nil
}

func (n *Node) treePath(tree string) string {
	return filepath.Join(n.cluster.disks, n.Name(), "own", strings.ReplaceAll(strings.TrimPrefix(tree, "/"), "/", "-"))
}

// removeState removes what a stopped node has written, except logs and configuration.
func (n *Node) removeState() error {
	errs := []error{os.RemoveAll(filepath.Join(n.dir(), "own"))}
	for name := range ownDirectories {
		errs = append(errs, os.RemoveAll(filepath.Join(n.dir(), name)))
	}
	return errors.Join(errs...)
}
