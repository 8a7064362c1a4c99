package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEtcdData runs the command that the Jobs of status.retired run.
func TestEtcdData(t *testing.T) {
	const before, after = "k8s-master-m0aaa", "retired-20261122T060000Z-k8s-master-m0aaa"
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, before), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(do, as string) (string, error) {
		c, out := New(), &strings.Builder{}
		c.SetOut(out)
		c.SetErr(out)
		c.SetArgs([]string{"etcd-data", do, "--directory=" + directory, "--name=" + before, "--as=" + as})
		return out.String(), c.Execute()
	}
	for _, wrong := range []string{"../x", "k8s-master-m1aaa", "retired-", after + "/x", ""} {
		for _, do := range []string{"rename", "remove"} {
			if _, err := run(do, wrong); err == nil || !strings.Contains(err.Error(), "has to be one like retired-") {
				t.Errorf("%s --as=%q: %v", do, wrong, err)
			}
		}
	}
	for _, step := range []struct{ do, left string }{{"rename", after}, {"rename", after}, {"remove", ""}, {"remove", ""}} {
		if _, err := run(step.do, after); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != step.left {
			t.Errorf("after %s there is %q, want %q", step.do, got, step.left)
		}
	}
}
