// Package jail starts a program, QEMU, as a user of its own that has no capability and no way to one, in a root directory that holds nothing
// but the program and the files that it is given. A guest that takes over its QEMU finds itself there.
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

// Jail is what a program is locked into. The zero value starts programs as they are: as the runner's own user, who has to be somebody else
// than root then.
type Jail struct {
	// User is the number of the program's user and group; 0 for the runner's own.
	User int
	// Capabilities are the only ones that the program has. None, as a rule; with some, User is 0 and it stays root.
	Capabilities []uintptr
	// Directory is an empty directory on which the root directory is mounted, in a mount namespace of the program's own.
	Directory string
	// Paths are what the program finds besides itself, its libraries and its devices, each under its own path.
	Paths []Path
	// Processes mounts /proc, with the program's own process alone. QEMU needs it for directories that it shares.
	Processes bool
	// Offline gives the program a network without any interface.
	Offline bool
	// Say is told, in a sentence, when the jail has to do without something. May be nil.
	Say func(string)
}

// Path is a file or directory that a program is shown.
type Path struct {
	// Name is its absolute path, outside and inside.
	Name string
	// File is the open file, when the name has to lead to no other one. Nil: whatever the name leads to.
	File *os.File
	// Writable lets the program write, as far as the modes of files do.
	Writable bool
}

// Start starts a command and returns what waits for its end. The command is killed when the runner ends: the kernel sends the parent-death
// signal when the thread ends that forked, and Go ends threads at will (golang/go#27505), so one thread lives as long as the command.
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

// onThread runs do on a thread that ends with it, because do changes what the thread may do and sees. The first thread of a process does not
// end, and what it sees is what /proc says of the process: it is left alone.
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

// locked says whether there is anything to do.
func (j Jail) locked() bool { return j.User != 0 || len(j.Capabilities) > 0 }

// enter changes the thread, which the command inherits from. The order matters: each step needs what a later one takes away.
func (j Jail) enter(command *exec.Cmd) error {
	// What the runner was configured with is none of the program's business.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	var groups []uint32
	switch err := j.changeRoot(command.Path); {
	case errors.Is(err, errNoNamespace):
		groups = groupsOf(kvmDevice)
		j.say("QEMU has no root directory of its own: the runner may not make a mount namespace (it takes CAP_SYS_ADMIN)")
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

// groupsOf are the groups that a program needs to open a device that is not its own: the device's, if that may read and write it. The group
// root gets no program anywhere.
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

// separate gives the command further namespaces of its own: it needs no shared memory and no host name of others, and its network comes by
// descriptor.
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
