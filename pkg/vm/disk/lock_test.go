package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary play a role: "runner" locks the path in its first argument and starts the program
// in the rest, "careless" does the same but does not pass the lock on, "machine" waits for the end of its input.
const roleVariable = "DISK_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "machine":
		fmt.Println("QMP")
		_, _ = io.Copy(io.Discard, os.Stdin)
	default:
		playRunner(role == "runner", os.Args[1], os.Args[2:])
	}
}

func playRunner(handOn bool, path string, program []string) {
	lock, err := Acquire(path)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	child := exec.Command(program[0], program[1:]...)
	child.Env = append(os.Environ(), roleVariable+"=machine")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if handOn {
		child.ExtraFiles = []*os.File{lock.File()}
	}
	if err := child.Start(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("pid", child.Process.Pid)
	_ = child.Wait()
}

// startRunner returns a runner and the pid of its running machine, both of which end with the test.
func startRunner(t *testing.T, role, path string, program ...string) (*exec.Cmd, int) {
	t.Helper()
	runner := exec.Command(os.Args[0], append([]string{path}, program...)...)
	runner.Env = append(os.Environ(), roleVariable+"="+role)
	input, err := runner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := runner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = input.Close(), runner.Process.Kill() })
	var pid int
	ready := false
	for lines := bufio.NewScanner(output); pid == 0 || !ready; {
		if !lines.Scan() {
			t.Fatal("the runner ended before its machine ran")
		}
		if _, err := fmt.Sscanf(lines.Text(), "pid %d", &pid); err != nil && !strings.Contains(lines.Text(), "QMP") {
			t.Fatal(lines.Text())
		}
		ready = ready || strings.Contains(lines.Text(), "QMP")
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return runner, pid
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func free(path string) bool {
	lock, err := Acquire(path)
	return err == nil && lock.Close() == nil
}

func kill(t *testing.T, runner *exec.Cmd) {
	t.Helper()
	if err := runner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = runner.Process.Wait()
}

func newDirectory(t *testing.T) string { return t.TempDir() }

var lockable = map[string]func(*testing.T) string{"a directory": newDirectory, "an image": newImage, "a block device": newDevice}

func TestLockIsHeldWhileQEMULivesEvenWhenItsRunnerWasKilled(t *testing.T) {
	for name, prepare := range lockable {
		for program, arguments := range map[string]func(path string) []string{
			"a child": func(string) []string { return []string{os.Args[0]} },
			"QEMU":    qemu,
		} {
			t.Run(name+" and "+program, func(t *testing.T) {
				path := prepare(t)
				command := arguments(path)
				if _, err := exec.LookPath(command[0]); err != nil {
					t.Skip(err)
				}
				runner, machine := startRunner(t, "runner", path, command...)
				if free(path) {
					t.Fatal("not locked while the runner lives")
				}
				kill(t, runner)
				if free(path) {
					t.Fatal("not locked while QEMU lives")
				}
				if err := syscall.Kill(machine, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the lock is free", func() bool { return free(path) })
			})
		}
	}
}

// qemu opens the disk as well, with its own locks.
func qemu(path string) []string {
	command := []string{"qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none", "-S", "-qmp", "stdio"}
	switch info, err := os.Stat(path); {
	case err != nil || info.IsDir():
		return command
	case info.Mode().IsRegular():
		return append(command, "-blockdev", "driver=file,locking=on,node-name=disk,filename="+path)
	}
	return append(command, "-blockdev", "driver=host_device,locking=on,node-name=disk,filename="+path)
}

// TestLockThatIsNotHandedOnEndsWithItsRunner is what the test above would see if the lock was not inherited.
func TestLockThatIsNotHandedOnEndsWithItsRunner(t *testing.T) {
	for name, prepare := range lockable {
		t.Run(name, func(t *testing.T) {
			path := prepare(t)
			runner, machine := startRunner(t, "careless", path, os.Args[0])
			kill(t, runner)
			if !free(path) {
				t.Error("still locked")
			}
			if err := syscall.Kill(machine, 0); err != nil {
				t.Errorf("the machine has ended: %v", err)
			}
		})
	}
}

func TestLockedErrorNamesTheHolder(t *testing.T) {
	path := newImage(t)
	runner, _ := startRunner(t, "runner", path, os.Args[0])
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(path)
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) {
		t.Fatalf("error %v", err)
	}
	if locked.Path != path || locked.Holder == nil || *locked.Holder != (Holder{PID: runner.Process.Pid, Host: host}) {
		t.Errorf("%+v, %+v", locked, locked.Holder)
	}
	if want := fmt.Sprintf("is locked by process %d of %q", runner.Process.Pid, host); !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestHolderIsUnknownWhenTheLockFileHoldsNonsense(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello", "no process": `{"host":"a"}`, "no end": strings.Repeat(`{"pid":1,`, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			lock, err := Acquire(path)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := os.WriteFile(filepath.Join(path, LockName), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var locked *LockedError
			if _, err := Acquire(path); !errors.As(err, &locked) || locked.Holder != nil {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestOneOfManyGetsTheLock(t *testing.T) {
	for name, prepare := range lockable {
		t.Run(name, func(t *testing.T) {
			path := prepare(t)
			locks := make([]*Lock, 8)
			var group sync.WaitGroup
			for i := range locks {
				group.Go(func() {
					lock, err := Acquire(path)
					if err != nil && !errors.Is(err, ErrLocked) {
						t.Error(err)
					}
					locks[i] = lock
				})
			}
			group.Wait()
			held := 0
			for _, lock := range locks {
				if lock != nil {
					held++
					if err := lock.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			if held != 1 {
				t.Errorf("%d hold the lock", held)
			}
			if !free(path) {
				t.Error("locked after Close")
			}
		})
	}
}

// TestDeviceIsLockedByWhateverName shows why devices are not locked by flock: every container has its own node.
func TestDeviceIsLockedByWhateverName(t *testing.T) {
	device := newDevice(t)
	var status unix.Stat_t
	if err := unix.Stat(device, &status); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(other, unix.S_IFBLK|0o600, int(status.Rdev)); err != nil {
		t.Fatal(err)
	}
	lock, err := Acquire(device)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := Acquire(other); !errors.Is(err, ErrLocked) {
		t.Errorf("error %v, want %v", err, ErrLocked)
	}
}

func TestNothingOfTheHostIsWrittenThroughALockFileOfTheGuest(t *testing.T) {
	for name, place := range map[string]func(target, name string) error{
		"a link":            os.Symlink,
		"a hard link":       os.Link,
		"a dangling link":   func(target, name string) error { return os.Symlink(target+".missing", name) },
		"a pipe":            func(_, name string) error { return unix.Mkfifo(name, 0o600) },
		"a device":          func(_, name string) error { return unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
		"a directory there": func(_, name string) error { return os.Mkdir(name, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			share, target := t.TempDir(), filepath.Join(t.TempDir(), "passwd")
			if err := os.WriteFile(target, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := place(target, filepath.Join(share, LockName)); errors.Is(err, os.ErrPermission) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if lock, err := Acquire(share); err == nil {
				t.Error("locked", lock.Close())
			}
			if text, err := os.ReadFile(target); err != nil || string(text) != "secret" {
				t.Errorf("%q, %v", text, err)
			}
			if _, err := os.Stat(target + ".missing"); err == nil {
				t.Error("a file of the host was made")
			}
		})
	}
}

func TestLockFileThatIsReplacedWhileItIsWaitedFor(t *testing.T) {
	path := t.TempDir()
	first, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	file, err := openLockFile(filepath.Join(path, LockName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Remove(filepath.Join(path, LockName)); err != nil {
		t.Fatal(err)
	}
	if IsAt(file, filepath.Join(path, LockName)) {
		t.Error("a lock on a removed file would do")
	}
}

func TestLockOfAnImageThatIsStillToBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	lock, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := Create(path, imageSize); err != nil {
		t.Fatal(err)
	}
	if free(path) {
		t.Error("not locked once it exists")
	}
}

func TestLockWithoutADirectoryForIt(t *testing.T) {
	if _, err := Acquire(filepath.Join(t.TempDir(), "missing/disk.img")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
