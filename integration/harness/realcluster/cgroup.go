package realcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupMount is the mount point of cgroups on every distribution.
const cgroupMount = "/sys/fs/cgroup"

// needed are the controllers that kubelet needs to start, on cgroup v2.
var needed = []string{"cpu", "cpuset", "memory", "pids"}

// together is the weight of all nodes of a cluster and its control plane when CPU time is short. Another process of
// this machine, or, where the kernel groups them (autogroup), a session, has weight 1. With a larger weight, clients of
// the cluster get so much less CPU time that they wait at each of their many short turns: kubectl took up to 28 s with
// 10, and 0.3 s otherwise.
const together = 2

// planeWeight is the weight of the control plane among the nodes of its cluster. It needs little CPU time, but at once,
// because clients of an API server that waits for its turn time out.
const planeWeight = 4

// makeCgroup creates the cgroup of a node, name, in every hierarchy, because kubelet requires it, with all controllers.
// The name starts with the cluster's cgroup, which it also creates. weight is the weight of the node within the
// cluster.
func makeCgroup(name string, weight int) error {
	if unified() {
		return errors.Join(makeUnified(name), setWeight(filepath.Dir(name), "cpu.weight", 100*together), setWeight(name, "cpu.weight", 100*weight))
	}
	for _, hierarchy := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(hierarchy, name), 0o755); err != nil {
			return fmt.Errorf("making the cgroup of a node: %w", err)
		}
	}
	// No process can run in a new cpuset before its CPUs and memory nodes are set.
	path := filepath.Join(cgroupMount, "cpuset")
	for element := range strings.SplitSeq(name, "/") {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(path, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(path, element, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("making the cgroup of a node: %w", err)
			}
		}
		path = filepath.Join(path, element)
	}
	cpu := func(name string) string { return filepath.Join("cpu", name) }
	return errors.Join(setWeight(cpu(filepath.Dir(name)), "cpu.shares", 1024*together), setWeight(cpu(name), "cpu.shares", 1024*weight))
}

// enlist adds a process to a cgroup for the distribution of CPU time.
func enlist(name string, pid int) error {
	hierarchy := filepath.Join(cgroupMount, "cpu")
	if unified() {
		hierarchy = cgroupMount
	}
	if err := os.WriteFile(filepath.Join(hierarchy, name, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("moving process %d to cgroup %s: %w", pid, name, err)
	}
	return nil
}

func setWeight(path, file string, weight int) error {
	if err := os.WriteFile(filepath.Join(cgroupMount, path, file), []byte(strconv.Itoa(weight)), 0o644); err != nil {
		return fmt.Errorf("weighing a cgroup: %w", err)
	}
	return nil
}

// makeUnified creates a cgroup of version 2. Each level enables the controllers for the next one.
func makeUnified(name string) error {
	path := cgroupMount
	for element := range strings.SplitSeq(name, "/") {
		if err := handDown(path); err != nil {
			return err
		}
		path = filepath.Join(path, element)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the cgroup of a node: %w", err)
		}
	}
	return nil
}

func handDown(path string) error {
	available, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("making the cgroup of a node: %w", err)
	}
	for _, controller := range needed {
		if !slices.Contains(strings.Fields(string(available)), controller) {
			return fmt.Errorf("cgroup %s has no controller %s: kubelet cannot run here", path, controller)
		}
	}
	for controller := range strings.FieldsSeq(string(available)) {
		err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		if err != nil && slices.Contains(needed, controller) {
			return fmt.Errorf("handing controller %s down from cgroup %s, in which there may be no process unless it is the root: %w", controller, path, err)
		}
	}
	return nil
}

// unified reports whether all controllers are those of cgroup v2.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers"))
	return err == nil
}

// hierarchies returns the mounted hierarchies: one for cgroup v2, otherwise one or more for each controller. It omits
// links to others.
func hierarchies() []string {
	if unified() {
		return []string{cgroupMount}
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, filepath.Join(cgroupMount, entry.Name()))
		}
	}
	return found
}

// cgroupsNamed returns the matching cgroups below the roots of all hierarchies.
func cgroupsNamed(pattern string) []string {
	var all []string
	for _, hierarchy := range hierarchies() {
		found, err := filepath.Glob(filepath.Join(hierarchy, pattern))
		if err == nil {
			all = append(all, found...)
		}
	}
	return all
}

// removeCgroup removes a cgroup and everything below it. Its processes are dead but may not have disappeared yet.
func removeCgroup(path string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := removeCgroupTree(path)
		if err == nil || time.Now().After(deadline) || !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
}

func removeCgroupTree(path string) error {
	var all []string
	err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(all) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
