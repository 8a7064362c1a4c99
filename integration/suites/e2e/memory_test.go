package e2e_test

import (
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
)

// stayBelowTheirLimits prints the memory of each node pod that cannot be reclaimed, and its limit, from the pod's own
// cgroup. It fails when little is left because a machine that is killed for memory loses what its guest had not
// written. The cgroups are of version 1, as in the lab.
func (l *life) stayBelowTheirLimits() {
	l.t.Helper()
	for _, pod := range strings.Fields(l.management("--namespace="+id, "get", "pods", "--selector=app in (master,worker)", "--output=jsonpath={.items[*].metadata.name}")) {
		read := func(file string) map[string]int64 {
			return numbers(l.management("--namespace="+id, "exec", pod, "--container="+nodestep.Container, "--", "cat", "/sys/fs/cgroup/memory/memory."+file))
		}
		kept, limit := read("stat")["total_rss"]+read("kmem.usage_in_bytes")[""], read("limit_in_bytes")[""]
		l.t.Logf("%s: %d MiB of %d MiB", pod, kept>>20, limit>>20)
		if killed := read("oom_control")["oom_kill"]; kept == 0 || kept > limit*19/20 || killed > 0 {
			l.t.Errorf("%s has %d of %d bytes of memory, and %d processes were killed for it", pod, kept, limit, killed)
		}
	}
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
