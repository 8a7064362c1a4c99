// Package mounttest has tests see directories as a pod would that mounts them.
package mounttest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ReadOnly does something in a mount namespace of its own in which a directory is mounted read-only. Only the goroutine that do is called in sees
// that, not those that it starts. It skips the test where that takes root.
func ReadOnly(t *testing.T, directory string, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine, with its mounts
		err := mount(directory)
		if err == nil {
			do()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func mount(directory string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(directory, directory, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", directory, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
