package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
)

// stayBelowTheirLimits prints the memory of each node pod that cannot be reclaimed, and its limit, from the cgroup of its
// container. It fails when little is left because a machine that is killed for memory loses what its guest had not
// written. The cgroups are of version 1, as in the lab, whose nodes are on this machine.
func (l *life) stayBelowTheirLimits() {
	l.t.Helper()
	const each = `{range .items[*]}{.metadata.name} {.status.containerStatuses[?(@.name=="` + nodestep.Container + `")].containerID}{"\n"}{end}`
	for line := range strings.Lines(l.management("--namespace="+id, "get", "pods", "--selector=app in (master,worker)", "--output=jsonpath="+each)) {
		pod, container, _ := strings.Cut(strings.TrimSpace(line), " containerd://")
		directory := l.cgroup(container)
		read := func(file string) map[string]int64 {
			text, err := os.ReadFile(filepath.Join(directory, "memory."+file))
			if err != nil {
				l.t.Errorf("the memory of %s: %v", pod, err)
			}
			return numbers(string(text))
		}
		kept, limit := read("stat")["total_rss"]+read("kmem.usage_in_bytes")[""], read("limit_in_bytes")[""]
		l.t.Logf("%s: %d MiB of %d MiB", pod, kept>>20, limit>>20)
		if killed := read("oom_control")["oom_kill"]; kept == 0 || kept > limit*19/20 || killed > 0 {
			l.t.Errorf("%s has %d of %d bytes of memory, and %d processes were killed for it", pod, kept, limit, killed)
		}
	}
}

// cgroup returns the directory of a container in the hierarchy for memory.
func (l *life) cgroup(container string) (directory string) {
	l.t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup/memory", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == container {
			directory = path
			return fs.SkipAll
		}
		return nil // a cgroup may end meanwhile
	})
	if err != nil || directory == "" {
		l.t.Errorf("container %q has no cgroup: %v", container, err)
	}
	return directory
}

// numbers reads lines with a name and a number, or with only a number.
func numbers(text string) map[string]int64 {
	found := map[string]int64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64); err == nil {
			found[strings.Join(fields[:len(fields)-1], " ")] = n
		}
	}
	return found
}
