package scale_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cpu is the processor time that was used: by this process, which is the operator and the clients of the benchmark, and by
// the processes that it started, which are the API server and etcd.
type cpu struct{ own, servers time.Duration }

func (c cpu) String() string { return fmt.Sprintf("%.1f+%.1f s", c.own.Seconds(), c.servers.Seconds()) }

func (c cpu) minus(other cpu) cpu {
	return cpu{own: c.own - other.own, servers: c.servers - other.servers}
}

// ticks are a second in /proc/PID/stat: USER_HZ of proc(5), which is 100 on every platform of Linux that Go runs on.
const ticks = 100

// usedCPU reads the processor time of this process and of its running children from /proc.
func usedCPU(t testing.TB) (used cpu) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatalf("reading /proc: %v", err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // The process has ended.
		}
		// Field 2 is the program's name in parentheses, which may contain spaces. The fields after it begin with number 3.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		switch strconv.Itoa(os.Getpid()) {
		case filepath.Base(filepath.Dir(path)):
			used.own += processTime(t, fields)
		case fields[1]:
			used.servers += processTime(t, fields)
		}
	}
	return used
}

// processTime is utime and stime, fields 14 and 15 of proc(5).
func processTime(t testing.TB, fields []string) (sum time.Duration) {
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum
}

// awaitRest waits until this process has used less than a twentieth of a processor for a second: passes that are still
// under way would count as memory in use.
func awaitRest(t testing.TB) {
	const second, rest = time.Second, time.Second / 20
	for late := time.Now().Add(timeout); time.Now().Before(late); {
		used := usedCPU(t)
		time.Sleep(second)
		if usedCPU(t).minus(used).own < rest {
			return
		}
	}
	t.Fatalf("the operator is not at rest after %s", timeout)
}
