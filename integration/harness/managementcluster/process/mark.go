package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A mark in a name identifies the process that owns the named object: "<pid namespace>-<pid>-<start time>". So
// leftovers of a killed process can be distinguished from what others still use.

// Mark is the mark of this process.
func Mark() (string, error) {
	namespace, err := pidNamespace()
	if err != nil {
		return "", err
	}
	started, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d-%s", namespace, os.Getpid(), started), nil
}

// Ended reports whether a name begins with the mark of a process that has ended. Nothing is known about processes in
// other PID namespaces, or about names without a mark.
func Ended(name string) (bool, error) {
	fields := strings.SplitN(name, "-", 4)
	if len(fields) < 3 {
		return false, nil
	}
	own, err := pidNamespace()
	if err != nil {
		return false, err
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil || fields[0] != strconv.FormatUint(own, 10) {
		return false, nil //nolint:nilerr // a name without a mark belongs to others
	}
	started, err := startTime(pid)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return started != fields[2], err
}

// pidNamespace returns the number of this process's PID namespace.
func pidNamespace() (uint64, error) {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0, err
	}
	number := strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
	return strconv.ParseUint(number, 10, 64)
}
