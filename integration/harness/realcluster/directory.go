package realcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// namePrefix is the prefix of the names of everything that is left on the machine when this process is killed. The
// process's mark follows.
const namePrefix = "realcluster-"

// removeLeftovers removes the directories and cgroups of processes that have ended without Stop.
func removeLeftovers() error {
	directories, err := filepath.Glob(filepath.Join(temporaryRoot(), namePrefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range append(directories, cgroupsNamed(namePrefix+"*")...) {
		ended, err := process.Ended(strings.TrimPrefix(filepath.Base(path), namePrefix))
		if err != nil || !ended {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, removeLeftover(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing what a killed process has left behind: %w", err)
	}
	return nil
}

func removeLeftover(path string) error {
	if strings.HasPrefix(path, cgroupMount+"/") {
		return removeCgroup(path)
	}
	return os.RemoveAll(path)
}

// temporaryRoot is the directory for large files, because /tmp is in memory on many machines.
func temporaryRoot() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	return "/var/tmp"
}

// takeDirectory creates and locks the state directory. It first removes the directories that killed processes have left
// behind.
func (c *Cluster) takeDirectory() (err error) {
	if err := removeLeftovers(); err != nil {
		return err
	}
	c.temporary = c.options.Dir == ""
	if c.temporary {
		c.options.Dir, err = os.MkdirTemp(temporaryRoot(), c.name+"-")
	} else {
		err = os.MkdirAll(c.options.Dir, 0o755)
	}
	if err == nil {
		err = c.lockDirectory()
	}
	if err == nil {
		err = c.makeDisks()
	}
	return err
}

// lockDirectory locks the state directory against others. The kernel releases the lock with the last descriptor, so a
// crash leaves no lock behind.
func (c *Cluster) lockDirectory() error {
	lock, err := os.OpenFile(c.path("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("locking the state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another management cluster runs in %s (%w): stop it or use another directory", c.Dir(), err), lock.Close())
	}
	c.lock = lock
	return nil
}

// makeDisks chooses where nodes store their changes to ownTrees: in the state directory, unless this is in one of them,
// because an overlay must not lie over its own directory.
func (c *Cluster) makeDisks() (err error) {
	if c.disks = c.options.Dir; !inOwnTree(c.disks) {
		return nil
	}
	if inOwnTree(temporaryRoot()) {
		return fmt.Errorf("neither the state directory %s nor the temporary one %s is outside of %v: set TMPDIR to one that is", c.Dir(), temporaryRoot(), ownTrees)
	}
	c.disks, err = os.MkdirTemp(temporaryRoot(), c.name+"-disks-")
	return err
}

func inOwnTree(path string) bool {
	return slices.ContainsFunc(ownTrees, func(tree string) bool { return strings.HasPrefix(path+"/", tree+"/") })
}

// release unlocks the state directory and removes everything temporary.
func (c *Cluster) release(removeDir bool) error {
	var errs []error
	if c.disks != c.options.Dir && c.disks != "" {
		errs = append(errs, os.RemoveAll(c.disks))
	}
	if removeDir {
		errs = append(errs, os.RemoveAll(c.options.Dir))
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
		c.lock = nil
	}
	return errors.Join(errs...)
}
