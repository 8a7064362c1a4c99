package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/managementcluster/process"
)

func newState(t *testing.T) state {
	t.Helper()
	root := t.TempDir()
	return state{root: root, dir: filepath.Join(root, ".demo")}
}

func TestOnlyOneDemoRuns(t *testing.T) {
	s := newState(t)
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	err := s.take()
	if err == nil || !strings.Contains(err.Error(), "runs already") || !strings.Contains(err.Error(), "make demo-down") {
		t.Errorf("a second demo got %v", err)
	}
}

func TestDownEndsWhatACrashedDemoLeft(t *testing.T) {
	s := newState(t)
	dir := filepath.Join(s.dir, "management-cluster")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	left, err := process.Start(process.Command{Name: "etcd", Path: "/bin/sleep", Args: []string{"600"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // no demo at all is no error
		if err := down(s); err != nil {
			t.Fatal(err)
		}
	}
	<-left.Done()
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", s.dir, err)
	}
}

func TestUpReplacesTheStateOfACrashedDemo(t *testing.T) {
	s := newState(t)
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The start time belongs to no process of this machine.
	if err := os.WriteFile(s.record(), []byte("2 0.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("operator.log"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path("operator.log")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log of the crashed demo is still there (%v)", err)
	}
	if pid, err := process.Recorded(s.record()); err != nil || pid != os.Getpid() {
		t.Errorf("recorded is process %d (%v), want this one, %d", pid, err, os.Getpid())
	}
}
