// Package process runs child processes that cannot outlive this one: not after Stop, not after a panic, not even after
// SIGKILL. If a run still leaves something behind (a machine without PR_SET_PDEATHSIG), its record identifies it.
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
	// Name is used in messages and in the names of the process's files: Dir/<Name>.log and Dir/<Name>.pid.
	Name string
	// Path is the executable and Args are its arguments, without the name of the program.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Dir is the existing directory of the process's log and record. The process also runs in it.
	Dir string
	// Isolate are flags of clone(2), CLONE_NEW…, for the namespaces that the process gets for itself.
	Isolate uintptr
	// Enter joins existing namespaces, if set. It is called on the thread that starts the process, which is used for
	// nothing else and ends with the process.
	Enter func() error
	// Guarded says that Enter joins a PID namespace that ends with this process. That ends the child, too. The
	// parent-death signal cannot, because in there the parent has no id, and Go assumes that it is already dead.
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

// Start starts a command with its output appended to its log file. The child is killed when this process ends in any
// way. It is alone in its process group, so Ctrl-C only reaches this process, which then stops its children in order.
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

// start forks from its own operating system thread, which waits for the child's end. The kernel sends the parent-death
// signal when the forking *thread* ends, and Go may end a thread at any time (golang/go#27505).
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
			runtime.UnlockOSThread() // otherwise the thread ends with its goroutine because it is in other namespaces
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

// PID returns the id of the process, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop stops the process: at once when grace is 0, otherwise by SIGTERM and, if it still runs after grace, by SIGKILL.
// It returns when the process is gone. Stopping a process that has already ended is not an error.
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

// signal ignores errors because the only error for a child process is that it has ended.
func (p *Process) signal(signal os.Signal) { _ = p.Signal(signal) }

// Signal sends the process a signal. It fails when the process has ended.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Failure describes the state of the process, with the end and the path of its log.
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

// PortTaken reports whether the process has ended because another process uses its port.
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
