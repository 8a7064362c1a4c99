package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

// cleanupPatience is how long a demo may take to stop.
const cleanupPatience = time.Minute

// state is the directory with everything that a demo keeps on disk.
type state struct {
	root string // of the checkout
	dir  string
}

// openState finds the state directory, which need not exist.
func openState() (state, error) {
	root, err := os.Getwd()
	if err != nil {
		return state{}, err
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return state{}, fmt.Errorf("the demo runs in the root of the checkout, and this is none: %w", err)
	}
	return state{root: root, dir: filepath.Join(root, ".demo")}, nil
}

func (s state) path(name string) string { return filepath.Join(s.dir, name) }
func (s state) record() string          { return s.path("demo.pid") }
func (s state) management() string      { return s.path("management.kubeconfig") }
func (s state) workload() string        { return s.path("workload.kubeconfig") }
func (s state) cluster() string         { return s.path("management-cluster") }

// check returns why the user with that id cannot start a demo here, in a sentence with a solution.
func check(s state, user int) error {
	if user != 0 {
		return errors.New("the demo makes network namespaces, mounts and cgroups for its nodes, and only root may do that: " +
			`run it as root, for example by sudo env "PATH=$PATH" make demo`)
	}
	return s.free()
}

// free returns why no demo can start in this checkout: another one runs.
func (s state) free() error {
	pid, err := process.Recorded(s.record())
	if err != nil || pid == 0 {
		return err
	}
	return fmt.Errorf("a demo runs already in this checkout (process %d): use it with\n\n    export KUBECONFIG=%s\n\nor stop it with `make demo-down`",
		pid, s.management())
}

// take creates the state directory for this process. It first removes what a crashed demo left there.
func (s state) take() error {
	if err := s.clear(); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return err
	}
	if err := process.WriteRecord(s.record()); err != nil {
		return err
	}
	return s.keepProgramsInside()
}

// keepProgramsInside makes go, helm and kubectl keep their files in the state directory, including those that they
// leave behind when they are killed.
func (s state) keepProgramsInside() error {
	programs := s.path("programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"GOTMPDIR", "KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		errs = append(errs, os.Setenv(name, programs))
	}
	return errors.Join(errs...)
}

// clear ends every process that is recorded in the state directory, except this one, and removes the directory.
func (s state) clear() error {
	// The patterns go no deeper because the file systems of containers there have other files of this name.
	for _, pattern := range []string{s.record(), filepath.Join(s.cluster(), "*.pid"), filepath.Join(s.cluster(), "*", "*.pid")} {
		records, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, record := range records {
			if err := stopOther(record); err != nil {
				return fmt.Errorf("clearing %s: %w", s.dir, err)
			}
		}
	}
	return s.remove()
}

// stopOther stops the process of a record unless it is this one.
func stopOther(record string) error {
	pid, err := process.Recorded(record)
	if err != nil || pid == os.Getpid() {
		return err
	}
	return process.StopRecorded(record, time.Second)
}

// remove removes the state directory. The record of the demo goes last because it keeps other demos from starting.
func (s state) remove() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if path := s.path(entry.Name()); path != s.record() {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(s.dir)
}

// keepLogs removes everything except logs because the disks of machines and the images of nodes are large.
func (s state) keepLogs() error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var directories []string
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			directories = append(directories, path)
			return nil
		case entry.Type().IsRegular() && filepath.Ext(path) == ".log":
			return nil
		default:
			return root.Remove(path)
		}
	})
	for _, directory := range slices.Backward(directories) {
		// Directories that still contain logs remain.
		_ = root.Remove(directory)
	}
	return err
}

// down stops a demo that runs in this checkout, or cleans up after one.
func down(s state) error {
	_, err := os.Stat(s.dir)
	if none := errors.Is(err, fs.ErrNotExist); none {
		fmt.Println("no demo runs in", s.root)
		return removeLeftovers()
	}
	// The demo stops everything in order and removes its directory. The rest is for a demo that could not.
	if err := process.StopRecorded(s.record(), cleanupPatience); err != nil {
		return err
	}
	if err := errors.Join(detachAll(s), s.clear(), removeLeftovers()); err != nil {
		return err
	}
	fmt.Println("the demo is stopped and", s.dir, "is removed")
	return nil
}

// removeLeftovers removes the cgroups of demos that were killed. Only root can have created some.
func removeLeftovers() error {
	if os.Geteuid() != 0 {
		return nil
	}
	return realcluster.RemoveLeftovers()
}
