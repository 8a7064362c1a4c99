// Package jail starts a program, QEMU, as a separate user without capabilities or a way to gain any, in a root
// directory that contains only the program and the files that it is given. A guest that takes over its QEMU is confined
// there.
package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Jail is the sandbox of a program. The zero value starts programs as they are: as the runner's own user, who must not
// be root then.
type Jail struct {
	// User is the number of the program's user and group; 0 for the runner's own.
	User int
	// Capabilities are the only ones that the program has. There are usually none; with some, User is 0 and the program
	// stays root.
	Capabilities []uintptr
	// Directory is an empty directory on which the root directory is mounted, in a separate mount namespace.
	Directory string
	// Paths are what the program sees besides itself, its libraries and its devices, each under its own path.
	Paths []Path
	// Processes mounts /proc, with only the program's own process. QEMU needs it for directories that it shares.
	Processes bool
	// Offline gives the program a network without any interface.
	Offline bool
	// Say is called with a sentence if a part of the sandbox is not possible. May be nil.
	Say func(string)
}

// Path is a file or directory that a program sees.
type Path struct {
	// Name is its absolute path, outside and inside.
	Name string
	// File is the open file, if the name must refer to exactly this file. Nil: any file that the name refers to.
	File *os.File
	// Writable lets the program write, as far as the modes of files permit.
	Writable bool
}

// Start starts a command and returns a function that waits for its end. The command is killed when the runner ends: the
// kernel sends the parent-death signal when the thread that forked ends, and Go may end threads at any time
// (golang/go#27505), so one thread lives as long as the command.
func (j Jail) Start(command *exec.Cmd) (wait func() error, err error) {
	started, ended := make(chan error), make(chan error, 1)
	go j.onThread(func() {
		err := j.start(command)
		started <- err
		if err == nil {
			ended <- command.Wait()
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { return <-ended }, nil
}

// onThread runs do on a thread that ends with it, because do changes what the thread may do and sees. The first thread
// of a process does not end, and what it sees is what /proc reports of the process, so it is not used.
func (j Jail) onThread(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		do()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.onThread(do)
	}()
	<-done
}

func (j Jail) start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if j.locked() {
		if err := j.enter(command); err != nil {
			return fmt.Errorf("locking %s in: %w", command.Path, err)
		}
	}
	return command.Start()
}

// locked reports whether there is anything to do.
func (j Jail) locked() bool { return j.User != 0 || len(j.Capabilities) > 0 }

// enter changes the thread, from which the command inherits. The order matters: each step needs what a later one
// removes.
func (j Jail) enter(command *exec.Cmd) error {
	// The program must not see the runner's configuration.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	var groups []uint32
	switch err := j.changeRoot(command.Path); {
	case errors.Is(err, errNoNamespace):
		groups = groupsOf(kvmDevice)
		j.say("QEMU does not have its own root directory: the runner may not make a mount namespace (it takes CAP_SYS_ADMIN)")
	case err != nil:
		return err
	default:
		j.separate(command)
	}
	if j.User != 0 {
		own := uint32(j.User) //nolint:gosec // G115: checked by the settings
		command.SysProcAttr.Credential = &syscall.Credential{Uid: own, Gid: own, Groups: groups}
	}
	if err := j.dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	return nil
}

// groupsOf returns the groups that a program needs to open a device that is not its own: the device's group, if it may
// read and write the device. A program never gets the group root.
func groupsOf(path string) []uint32 {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return groupsFor(info.Mode(), status.Gid)
}

func groupsFor(mode fs.FileMode, group uint32) []uint32 {
	if group == 0 || mode.Perm()&0o060 != 0o060 {
		return nil
	}
	return []uint32{group}
}

// separate gives the command additional namespaces: it needs neither shared memory nor the host name of others, and its
// network comes by file descriptor.
func (j Jail) separate(command *exec.Cmd) {
	command.SysProcAttr.Cloneflags |= unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if j.Offline {
		command.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
}

func (j Jail) say(text string) {
	if j.Say != nil {
		j.Say(text)
	}
}
