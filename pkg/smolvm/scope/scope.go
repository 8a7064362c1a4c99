// Package scope moves a process into its own cgroup, so that it outlives the container or service that started it:
// what ends these kills the processes of their own cgroups (cgroups(7)).
package scope

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is where cgroups are mounted.
const Root = "/sys/fs/cgroup"

// Limits bound all processes of a cgroup together. 0: no bound.
type Limits struct {
	// Memory is in bytes.
	Memory int64
	// Processes is a number of processes and threads.
	Processes int64
}

// Enter moves the calling process into the cgroup name below parent, in every hierarchy below root, and bounds it. The
// parent is a path such as /smolvm, and is created, too. The error names what could not be done; the process may then be
// in the new cgroup of some hierarchies, and in its old one in others.
func Enter(root, parent, name string, l Limits) error {
	if err := check(parent, name); err != nil {
		return err
	}
	hierarchies, unified, err := find(root)
	if err != nil {
		return err
	}
	if len(hierarchies) == 0 {
		return fmt.Errorf("no cgroups are mounted at %s", root)
	}
	var errs []error
	for _, h := range hierarchies {
		if err := enter(h, parent, name, unified, l); err != nil {
			errs = append(errs, fmt.Errorf("entering the cgroup %s: %w", filepath.Join(h, parent, name), err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes the cgroup name below parent, if no process is in it.
func Remove(root, parent, name string) error {
	if err := check(parent, name); err != nil {
		return err
	}
	hierarchies, _, err := find(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hierarchies {
		if err := os.Remove(filepath.Join(h, parent, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func check(parent, name string) error {
	if !filepath.IsAbs(parent) || filepath.Clean(parent) != parent || parent == "/" {
		return fmt.Errorf("the cgroup %q is not a path such as /smolvm", parent)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fmt.Errorf("%q is not the name of a cgroup", name)
	}
	return nil
}

// modeOfCgroup is for root alone, as the machines are.
const modeOfCgroup = 0o700

// processes is the file of a cgroup that holds its processes.
const processes = "cgroup.procs"

// find returns the directories of the hierarchies: one with version 2, and one for each controller with version 1.
func find(root string) (hierarchies []string, unified bool, err error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, true, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		// Links are second names of hierarchies.
		if !e.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, e.Name(), processes)); err == nil {
			hierarchies = append(hierarchies, filepath.Join(root, e.Name()))
		}
	}
	return hierarchies, false, nil
}

func enter(hierarchy, parent, name string, unified bool, l Limits) error {
	directory := hierarchy
	for part := range strings.SplitSeq(strings.TrimPrefix(filepath.Join(parent, name), "/"), "/") {
		if unified {
			delegate(directory)
		}
		directory = filepath.Join(directory, part)
		if err := os.Mkdir(directory, modeOfCgroup); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := inheritCPUSet(directory); err != nil {
			return err
		}
	}
	if err := bound(directory, l); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, processes), []byte("0"), 0) // 0 is the writer
}

// delegate lets the cgroups below a directory be bounded (version 2). Without the controllers, they are entered
// unbounded.
func delegate(directory string) {
	for _, controller := range []string{"+memory", "+pids"} {
		_ = os.WriteFile(filepath.Join(directory, "cgroup.subtree_control"), []byte(controller), 0)
	}
}

// inheritCPUSet gives a new cgroup of the controller cpuset (version 1) the processors and memory of its parent: it has
// none at first, and takes no process.
func inheritCPUSet(directory string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || len(strings.TrimSpace(string(own))) > 0 {
			continue // another controller, version 2, or done before
		}
		parents, err := os.ReadFile(filepath.Join(filepath.Dir(directory), name))
		if err != nil || len(strings.TrimSpace(string(parents))) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(directory, name), parents, 0); err != nil {
			return err
		}
	}
	return nil
}

// bound writes the limits to the files that the cgroup has.
func bound(directory string, l Limits) error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"memory.max", l.Memory}, {"memory.limit_in_bytes", l.Memory}, {"pids.max", l.Processes},
	} {
		path := filepath.Join(directory, f.name)
		if _, err := os.Stat(path); f.value == 0 || err != nil {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.FormatInt(f.value, 10)), 0); err != nil {
			return err
		}
	}
	return nil
}
