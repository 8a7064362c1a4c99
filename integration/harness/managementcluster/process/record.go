package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A record names a process in a file, as "<pid> <start time>". The start time distinguishes it from a later process
// with the same id.

// WriteRecord records this process in a file.
func WriteRecord(path string) error { return writeRecord(path, os.Getpid()) }

func writeRecord(path string, pid int) error {
	started, err := startTime(pid)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has already ended, which its caller will see
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%d %s\n", pid, started), 0o644)
}

// Recorded returns the id of the process that a record names, or 0 when that process no longer runs or there is no
// record.
func Recorded(path string) (int, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(content))
	if len(fields) != 2 {
		return 0, fmt.Errorf("%s is no record of a process: %q", path, content)
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s names no process: %q", path, content)
	}
	started, err := startTime(pid)
	if errors.Is(err, os.ErrNotExist) || err == nil && started != fields[1] {
		return 0, nil
	}
	return pid, err
}

// StopRecorded stops the process that a record names, as Process.Stop does, and removes the record.
func StopRecorded(path string, grace time.Duration) error {
	err := signalRecorded(path, syscall.SIGTERM, grace)
	if err == nil {
		err = signalRecorded(path, syscall.SIGKILL, 10*time.Second)
	}
	if err != nil {
		return fmt.Errorf("stopping the process recorded in %s: %w", path, err)
	}
	if pid, err := Recorded(path); err != nil || pid != 0 {
		return errors.Join(err, fmt.Errorf("process %d, recorded in %s, does not end on SIGKILL", pid, path))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// signalRecorded signals the recorded process and waits at most patience until it is gone.
func signalRecorded(path string, signal syscall.Signal, patience time.Duration) error {
	pid, err := Recorded(path)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to process %d: %w", signal, pid, err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if pid, err := Recorded(path); err != nil || pid == 0 {
			return err
		}
	}
	return nil
}

// startTime returns when a process started, in clock ticks since boot (proc(5), field 22 of stat), and os.ErrNotExist
// when there is no such process or it is a zombie.
func startTime(pid int) (string, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, syscall.ESRCH) {
		return "", os.ErrNotExist
	}
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses and may contain any character.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d has an unknown form of stat: %q", pid, content)
	}
	if fields[0] == "Z" {
		return "", os.ErrNotExist
	}
	return fields[19], nil
}
