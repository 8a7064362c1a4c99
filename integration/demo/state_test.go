package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const root = 0

func newState(t *testing.T) state {
	t.Helper()
	for _, name := range []string{"GOTMPDIR", "KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		t.Setenv(name, os.Getenv(name)) // so that it is restored
	}
	directory := t.TempDir()
	return state{root: directory, dir: filepath.Join(directory, ".demo")}
}

// write creates files with their directories.
func write(t *testing.T, s state, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func mustBeGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func TestDemoDoesNotStart(t *testing.T) {
	running := newState(t)
	if err := running.take(); err != nil {
		t.Fatal(err)
	}
	crashed := newState(t)
	// The start time belongs to no process of this machine.
	write(t, crashed, map[string]string{"demo.pid": "2 0.5\n"})
	for name, test := range map[string]struct {
		state state
		user  int
		want  []string // empty: it starts
	}{
		"for a user who is not root":         {newState(t), 1000, []string{"only root", "sudo"}},
		"while another one runs":             {running, root, []string{"runs already in this checkout", running.management(), "make demo-down"}},
		"but for root, for the first time":   {newState(t), root, nil},
		"but after another one that crashed": {crashed, root, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(test.state, test.user)
			if (err == nil) != (test.want == nil) {
				t.Fatalf("check says %v", err)
			}
			for _, words := range test.want {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
		})
	}
}

func TestUpReplacesTheStateOfACrashedDemo(t *testing.T) {
	s := newState(t)
	write(t, s, map[string]string{"demo.pid": "2 0.5\n", "operator.log": "old"})
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, s.path("operator.log"))
	if pid, err := process.Recorded(s.record()); err != nil || pid != os.Getpid() {
		t.Errorf("recorded is process %d (%v), want this one, %d", pid, err, os.Getpid())
	}
	if dir := os.Getenv("KUBECACHEDIR"); !strings.HasPrefix(dir, s.dir+"/") {
		t.Errorf("kubectl keeps its cache in %q, want it in %s", dir, s.dir)
	}
}

func TestDownEndsWhatACrashedDemoLeft(t *testing.T) {
	s := newState(t)
	// A file of a container is not a record.
	write(t, s, map[string]string{"management-cluster/node-1/containerd/snapshot/run/web.pid": "in a container"})
	var left []*process.Process
	for name, dir := range map[string]string{"site": s.cluster(), "node": filepath.Join(s.cluster(), "node-1")} {
		p, err := process.Start(process.Command{Name: name, Path: "/bin/sleep", Args: []string{"600"}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, p)
	}
	for range 2 { // no demo at all is not an error
		if err := down(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range left {
		<-p.Done()
	}
	mustBeGone(t, s.dir)
}

func TestADemoClearsItsOwnStateWithoutEndingItself(t *testing.T) {
	s := newState(t)
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	write(t, s, map[string]string{"workload.kubeconfig": "a key"})
	if err := s.clear(); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, s.dir)
}

func TestOnlyLogsAreKeptAfterAFailure(t *testing.T) {
	s := newState(t)
	if err := s.take(); err != nil {
		t.Fatal(err)
	}
	write(t, s, map[string]string{
		"management.kubeconfig": "a key", "operator.log": "", "management-cluster/node-1/kubelet.log": "",
		"management-cluster/node-1/own/var-log/upper/pods/worker/0.log": "the console", "management-cluster/node-1/kubelet/disk.img": "",
	})
	if err := os.Symlink("0.log", s.path("management-cluster/node-1/link.log")); err != nil {
		t.Fatal(err)
	}
	if err := s.keepLogs(); err != nil {
		t.Fatal(err)
	}
	var kept []string
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (!entry.IsDir() || path == s.path("programs") || filepath.Base(path) == "kubelet") {
			kept = append(kept, strings.TrimPrefix(path, s.dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(kept)
	want := []string{"management-cluster/node-1/kubelet.log", "management-cluster/node-1/own/var-log/upper/pods/worker/0.log", "operator.log"}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("other files than logs are kept (-want +got):\n%s", diff)
	}
}
