package scope

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// child makes the test binary a process that enters a cgroup and says where it is.
const child = "SCOPE_TEST_CHILD"

func TestMain(m *testing.M) {
	if parent := os.Getenv(child); parent != "" {
		if err := Enter(Root, parent, "machine", Limits{Memory: 256 << 20, Processes: 50}); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		text, _ := os.ReadFile("/proc/self/cgroup")
		fmt.Print(string(text))
		for _, path := range []string{"memory/%s/machine/memory.limit_in_bytes", "%s/machine/memory.max", "pids/%s/machine/pids.max", "%s/machine/pids.max"} {
			if text, err := os.ReadFile(filepath.Join(Root, fmt.Sprintf(path, parent))); err == nil {
				fmt.Printf("limit %s", text)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestEnter needs root, and cgroups that may be written, as every privileged container has them.
func TestEnter(t *testing.T) {
	parent := fmt.Sprintf("/scope-test-%d", os.Getpid())
	t.Cleanup(func() {
		hierarchies, _, _ := find(Root)
		for _, h := range hierarchies {
			_ = os.Remove(filepath.Join(h, parent))
		}
	})
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), child+"="+parent)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var outside []string
	limits := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		if limit, ok := strings.CutPrefix(line, "limit "); ok {
			limits[limit] = true
		} else if !strings.HasSuffix(line, parent+"/machine") && !unmounted(line) {
			outside = append(outside, line)
		}
	}
	if len(outside) > 0 || !limits["268435456"] || !limits["50"] {
		t.Errorf("not in the cgroup: %v; limits %v; output:\n%s", outside, limits, output)
	}
	if err := Remove(Root, parent, "machine"); err != nil {
		t.Error(err)
	}
	if err := Remove(Root, parent, "machine"); err != nil {
		t.Errorf("removing again: %v", err)
	}
}

// unmounted reports whether a line of /proc/self/cgroup is of a hierarchy that is not mounted here.
func unmounted(line string) bool {
	parts := strings.SplitN(line, ":", 3)
	hierarchies, unified, _ := find(Root)
	if unified {
		return parts[1] != ""
	}
	name := strings.TrimPrefix(parts[1], "name=")
	if name == "" {
		name = "unified"
	}
	return !slices.Contains(hierarchies, filepath.Join(Root, name))
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	for text, c := range map[string]struct{ parent, name string }{
		"no path": {"smolvm", "a"}, "the root": {"/", "a"}, "upwards": {"/a/../b", "c"}, "no name": {"/a", ""}, "up": {"/a", ".."}, "a path": {"/a", "b/c"},
	} {
		t.Run(text, func(t *testing.T) {
			if err := Enter(t.TempDir(), c.parent, c.name, Limits{}); err == nil || !strings.Contains(err.Error(), "not") {
				t.Errorf("error %v", err)
			}
			if err := Remove(t.TempDir(), c.parent, c.name); err == nil {
				t.Error("removed")
			}
		})
	}
}

func TestWithoutCgroupsItSaysSo(t *testing.T) {
	if err := Enter(t.TempDir(), "/smolvm", "a", Limits{}); err == nil || !strings.Contains(err.Error(), "no cgroups are mounted") {
		t.Errorf("error %v", err)
	}
}
