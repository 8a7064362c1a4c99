package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/managementcluster/process"
)

// cleanupPatience is how long a demo that is told to stop may take to do so.
const cleanupPatience = 30 * time.Second

// state is the directory with everything that a demo keeps on disk.
type state struct {
	root string // of the checkout
	dir  string
}

// openState finds the state directory; it need not exist.
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
func (s state) kubeconfig() string      { return s.path("kubeconfig") }

// take makes the state directory this process's own. What a demo that crashed left there is removed first.
func (s state) take() error {
	pid, err := process.Recorded(s.record())
	if err != nil {
		return err
	}
	if pid != 0 {
		return fmt.Errorf("a demo runs already (process %d): use it with\n\n    export KUBECONFIG=%s\n\nor stop it with `make demo-down`",
			pid, s.kubeconfig())
	}
	if err := s.clear(); err != nil {
		return err
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return err
	}
	return process.WriteRecord(s.record())
}

// clear ends every process recorded in the state directory and removes it.
func (s state) clear() error {
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".pid" {
			return err
		}
		return process.StopRecorded(path, time.Second)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clearing %s: %w", s.dir, err)
	}
	return os.RemoveAll(s.dir)
}

// down stops a demo that runs in this checkout, or what is left of one.
func down(s state) error {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("no demo runs in", s.root)
		return nil
	}
	// The demo stops its own processes in order; clear ends those that it could not.
	if err := process.StopRecorded(s.record(), cleanupPatience); err != nil {
		return err
	}
	if err := s.clear(); err != nil {
		return err
	}
	fmt.Println("the demo is stopped and", s.dir, "is removed")
	return nil
}
