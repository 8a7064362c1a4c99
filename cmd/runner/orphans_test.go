package runner

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReapCollectsOrphans makes the test a subreaper, like PID 1: it becomes the parent of processes whose parent
// ended.
func TestReapCollectsOrphans(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("sh", "-c", "sleep 0.1 >/dev/null & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !deadChild(orphan); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the orphan did not end")
		}
	}
	first := reap(nil)
	if !first[orphan] || !deadChild(orphan) {
		t.Error("a process that has just died was reaped at once, although another goroutine may be about to wait for it")
	}
	if again := reap(first); again[orphan] || deadChild(orphan) {
		t.Error("who was dead before is still there")
	}
}
