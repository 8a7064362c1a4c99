package guest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// defaultPath is PATH where the image sets none, as in Docker.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command is a process to be.
type command struct {
	arguments []string
	// environment has NAME=value each, a name once.
	environment []string
	directory   string
	user        string
	// makeDirectory creates a missing directory, as container runtimes do for an image's working directory.
	makeDirectory bool
	// files are its standard input, output and error.
	files [3]*os.File
}

// start starts a command in a root, as the leader of a session. The error is a cannotRun if the command is to blame.
func (r *Root) start(by *reaper, c command) (*process, error) {
	who, err := r.account(c.user)
	if err != nil {
		return nil, &cannotRun{agentwire.ExitNotExecutable, err}
	}
	directory := path.Clean("/" + c.directory)
	if err := r.enter(directory, c.makeDirectory); err != nil {
		return nil, &cannotRun{agentwire.ExitNotExecutable, fmt.Errorf("the working directory %s: %w", directory, err)}
	}
	environment := complete(c.environment, who.home)
	program, err := r.program(c.arguments[0], variable(environment, "PATH"), directory)
	if err != nil {
		return nil, err
	}
	var files []uintptr
	for _, file := range c.files {
		if err := give(file, who); err != nil {
			return nil, err
		}
		files = append(files, file.Fd())
	}
	p, err := by.start(func() (int, error) {
		return syscall.ForkExec(program, c.arguments, &syscall.ProcAttr{Dir: directory, Env: environment, Files: files, Sys: &syscall.SysProcAttr{
			Chroot: self(r.directory), Setsid: true,
			Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups},
		}})
	})
	if err != nil {
		return nil, notStarted(program, err)
	}
	return p, nil
}

// give makes a pipe the process' own, which opens it by the name /dev/stdout with no other rights than those.
func give(file *os.File, who account) error {
	info, err := file.Stat()
	if err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return err
	}
	return file.Chown(int(who.uid), int(who.gid))
}

// enter checks that there is a directory.
func (r *Root) enter(directory string, create bool) error {
	var file *os.File
	var err error
	if create {
		file, err = r.directoryAt(directory)
	} else {
		file, err = r.open(directory, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// program returns the path of a program, which is looked up in a PATH unless its name has a slash.
func (r *Root) program(name, in, directory string) (string, error) {
	if strings.Contains(name, "/") {
		full := name
		if !path.IsAbs(full) {
			full = path.Join(directory, name)
		}
		return full, r.runs(full)
	}
	found := error(&cannotRun{agentwire.ExitNotFound, fmt.Errorf("there is no program %q in %s", name, in)})
	if name == "" {
		return "", &cannotRun{agentwire.ExitNotFound, errors.New("the name of the program is empty")}
	}
	for _, place := range strings.Split(in, ":") {
		if !path.IsAbs(place) {
			place = path.Join(directory, place)
		}
		full := path.Join(place, name)
		err := r.runs(full)
		var because *cannotRun
		if err == nil {
			return full, nil
		}
		if errors.As(err, &because) && because.code == agentwire.ExitNotExecutable {
			found = err
		}
	}
	return "", found
}

// runs checks that a file is a program.
func (r *Root) runs(name string) error {
	file, err := r.open(name, unix.O_PATH)
	if err != nil {
		return &cannotRun{agentwire.ExitNotFound, err}
	}
	defer file.Close() //nolint:errcheck // it was only inspected
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return &cannotRun{agentwire.ExitNotExecutable, fmt.Errorf("%s is not executable", name)}
	}
	return nil
}

// complete adds the variables that every process has.
func complete(environment []string, home string) []string {
	if variable(environment, "PATH") == "" {
		environment = append(slices.Clip(environment), "PATH="+defaultPath)
	}
	if variable(environment, "HOME") == "" {
		if home == "" {
			home = "/"
		}
		environment = append(slices.Clip(environment), "HOME="+home)
	}
	return environment
}

func variable(environment []string, name string) string {
	for _, v := range environment {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// stopSignal returns the signal of a name as in a Dockerfile: SIGTERM, TERM, 15, SIGRTMIN+3.
func stopSignal(name string) (unix.Signal, error) {
	const firstRealTime, last = 34, 64 // as the C library has it
	if name == "" {
		return unix.SIGTERM, nil
	}
	if n, ok := number(name); ok && n > 0 && n <= last {
		return unix.Signal(n), nil
	}
	short := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if n := unix.SignalNum("SIG" + short); n != 0 {
		return n, nil
	}
	if offset, ok := strings.CutPrefix(short, "RTMIN"); ok {
		n, isNumber := number(strings.TrimPrefix(offset, "+"))
		if offset == "" || isNumber && n <= last-firstRealTime {
			return firstRealTime + unix.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("there is no signal %q", name)
}
