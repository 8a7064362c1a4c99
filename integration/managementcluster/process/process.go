// Package process runs child processes that cannot outlive this one: not after Stop, not after a panic, not even after
// SIGKILL. What one run leaves behind all the same (a machine without PR_SET_PDEATHSIG) is found by the record it wrote.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Command says what to run.
type Command struct {
	// Name stands in messages and names the files of the process: Dir/<Name>.log and Dir/<Name>.pid.
	Name string
	// Path is the executable and Args are its arguments, without the name of the program.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir holds log and record of the process; it exists. The process itself works in it, too.
	Dir string
	// Isolate are flags of clone(2), CLONE_NEW…: namespaces that the process gets of its own.
	Isolate uintptr
	// Enter joins namespaces of others, if set. It is called on the thread that starts the process, which serves nothing
	// else and ends with the process.
	Enter func() error
	// Guarded says that Enter joins a namespace of process ids that ends with this process. That ends the child, too, and
	// the parent-death signal cannot: Go takes the parent, which has no id in there, for dead already.
	Guarded bool
}

// Process is a running child or one that has ended.
type Process struct {
	command Command
	cmd     *exec.Cmd
	log     int64 // length of the log file when the process started
	done    chan struct{}
	err     error // how it ended; valid after done is closed
}

// Start starts a command with output appended to its log file. The child is killed when this process ends, whatever
// ends it, and is alone in its process group, so that Ctrl-C reaches only this process, which then stops its children
// in order.
func Start(command Command) (*Process, error) {
	log, err := os.OpenFile(command.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", command.Name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", command.Name, err)
	}
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Dir = command.Dir
	cmd.Env = append(os.Environ(), command.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: command.Isolate}
	if !command.Guarded {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	p := &Process{command: command, cmd: cmd, log: info.Size(), done: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	if err := writeRecord(command.record(), cmd.Process.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("recording the process of %s: %w", command.Name, err), p.Stop(0))
	}
	return p, nil
}

// start forks from an operating system thread of its own that waits for the child's end: the kernel sends the
// parent-death signal when the forking *thread* ends, and Go ends threads at will (golang/go#27505).
func (p *Process) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := p.fork()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
		if p.command.Enter == nil {
			runtime.UnlockOSThread() // else the thread ends with its goroutine: it is not where the others are
		}
	}()
	return <-started
}

func (p *Process) fork() error {
	if p.command.Enter != nil {
		if err := p.command.Enter(); err != nil {
			return err
		}
	}
	return p.cmd.Start()
}

// PID is the id of the process, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the process: at once when grace is 0, else by SIGTERM and, should it still run after grace, by SIGKILL. It
// returns when the process is gone; stopping one that has ended already is no error.
func (p *Process) Stop(grace time.Duration) error {
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(grace):
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.done
	if err := os.Remove(p.command.record()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the record of %s: %w", p.command.Name, err)
	}
	return nil
}

// signal ignores errors: the only one that a child of one's own can cause is that it has ended.
func (p *Process) signal(signal os.Signal) { _ = p.Signal(signal) }

// Signal sends the process a signal. It fails when the process has ended.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Failure describes what the process has come to, with the end and the path of its log.
func (p *Process) Failure() error {
	state := "is still running"
	select {
	case <-p.done:
		state = "has ended (exit status 0)"
		if p.err != nil {
			state = fmt.Sprintf("has ended (%v)", p.err)
		}
	default:
	}
	end, err := tail(p.command.log(), p.log, 10)
	if err != nil {
		return fmt.Errorf("%s %s; its log cannot be read: %w", p.command.Name, state, err)
	}
	return fmt.Errorf("%s %s; end of %s:\n%s", p.command.Name, state, p.command.log(), end)
}

// PortTaken tells whether the process has ended because a port it was to listen on belongs to someone else.
func (p *Process) PortTaken() bool {
	select {
	case <-p.done:
		end, err := tail(p.command.log(), p.log, 30)
		return err == nil && strings.Contains(end, "address already in use")
	default:
		return false
	}
}

func (c Command) log() string    { return filepath.Join(c.Dir, c.Name+".log") }
func (c Command) record() string { return filepath.Join(c.Dir, c.Name+".pid") }
