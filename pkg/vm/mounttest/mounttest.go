// Package mounttest lets tests see directories as a pod would that mounts them.
package mounttest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ReadOnly calls do in a separate mount namespace in which a directory is mounted read-only. Only the goroutine in
// which do is called sees that, not goroutines that it starts. It skips the test if it is not run by root.
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
