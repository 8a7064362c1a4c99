package runner

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reapEvery is how often PID 1 looks for zombies.
const reapEvery = 30 * time.Second

// ReapOrphans collects the processes that others left to PID 1. Each `kubectl exec` of a shell may leave some, and a
// machine runs for months.
func ReapOrphans(ctx context.Context) {
	ticker := time.NewTicker(reapEvery)
	defer ticker.Stop()
	var before map[int]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			before = reap(before)
		}
	}
}

// reap collects the zombies that were zombies before and returns the ones that it leaves. The runner waits for its own
// children at once, so a process that stays a zombie for longer is an orphan.
func reap(before map[int]bool) map[int]bool {
	dead := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return dead
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !deadChild(pid) {
			continue
		}
		if before[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			continue
		}
		dead[pid] = true
	}
	return dead
}

// deadChild reports whether a process is a zombie and a child of this one (proc_pid_stat(5)).
func deadChild(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// The program's name is in parentheses and may hold any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid())
}
