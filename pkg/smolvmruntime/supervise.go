package smolvmruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// supervisor keeps a child running: smolvm. Machines are not the child's to end: they are in their own sessions, so
// signals go to the child alone and never to its group.
type supervisor struct {
	command []string
	log     *slog.Logger
	// output gets what the child writes.
	output io.Writer
	// first and most bound the time between the end of a child and the start of the next. It doubles with each child
	// that does not run for calm.
	first, most, calm time.Duration
	// grace is how long the child may take to end when it is asked to.
	grace time.Duration
	// started counts a start.
	started func()

	hung chan struct{}

	mu sync.Mutex
	// pid is the child's; 0 if there is none.
	pid    int
	reason string
}

func newSupervisor(command []string, output io.Writer, log *slog.Logger) *supervisor {
	return &supervisor{
		command: command, output: output, log: log, started: func() {}, hung: make(chan struct{}, 1),
		first: time.Second, most: time.Minute, calm: time.Minute, grace: 40 * time.Second,
	}
}

// Reason says why the last child ended; empty if the one that runs has answered. It has no times and numbers that
// differ from one end to the next, because it becomes the message of a condition.
func (s *supervisor) Reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// Answered notes that the child works, so that the end of the one before is no longer reported.
func (s *supervisor) Answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		s.reason = ""
	}
}

// Child returns the process of the child; 0 if there is none.
func (s *supervisor) Child() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

func (s *supervisor) set(pid int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pid = pid
	if reason != "" {
		s.reason = reason
	}
}

// Restart replaces a child that is alive and does not answer.
func (s *supervisor) Restart() {
	select {
	case s.hung <- struct{}{}:
	default:
	}
}

// Run starts the child, and starts it again when it ends, until the context ends. Then it returns after the child's
// end.
func (s *supervisor) Run(ctx context.Context) {
	if len(s.command) == 0 {
		return
	}
	for pause := s.first; ; pause = min(2*pause, s.most) {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= s.calm {
			pause = s.first
		}
		s.set(0, err.Error())
		s.log.Error("smolvm has ended", "reason", err, "restart", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// once runs the child until it ends. The error is why it ended.
func (s *supervisor) once(ctx context.Context) error {
	// The kernel ties the signal of Pdeathsig to the end of the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	complaint := &lastLines{}
	child := exec.Command(s.command[0], s.command[1:]...) //nolint:gosec // the administrator of the node names the command
	child.Stdout, child.Stderr = s.output, io.MultiWriter(s.output, complaint)
	// What the child leaves behind may have its output open; it is not waited for.
	child.WaitDelay = time.Second
	// Signals to the agent's group, such as that of Ctrl-C, are passed on by the agent, in its order. If the agent is
	// killed, the next one must find no other smolvm on the socket.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	s.forget()
	if err := child.Start(); err != nil {
		return fmt.Errorf("smolvm does not start: %w", err)
	}
	s.set(child.Process.Pid, "")
	s.started()
	s.log.Info("smolvm is started", "pid", child.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		return explain(err, complaint.error())
	case <-s.hung:
		s.log.Error("smolvm does not answer and is terminated", "pid", child.Process.Pid)
		s.end(child.Process, ended)
		return errors.New("smolvm did not answer and was terminated")
	case <-ctx.Done():
		s.end(child.Process, ended)
		return ctx.Err()
	}
}

// forget drops an order to replace the child before.
func (s *supervisor) forget() {
	select {
	case <-s.hung:
	default:
	}
}

// end asks the child to end, and kills it if it does not.
func (s *supervisor) end(child *os.Process, ended <-chan error) {
	_ = child.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		s.log.Info("smolvm has ended as requested", "error", err)
		return
	case <-time.After(s.grace):
	}
	s.log.Error("smolvm does not end and is killed", "pid", child.Pid, "after", s.grace)
	_ = child.Kill()
	s.log.Info("smolvm has ended", "error", <-ended)
}

// explain says how a child ended, and what it complained of.
func explain(err error, complaint string) error {
	how := "ended by itself"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		how = fmt.Sprintf("ended with exit code %d", exit.ExitCode())
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			how = fmt.Sprintf("was ended by the signal %q", status.Signal())
		}
	}
	if complaint != "" {
		how += ": " + complaint
	}
	return errors.New("smolvm " + how)
}

// lastLines keeps the last line that is an error.
type lastLines struct {
	mu   sync.Mutex
	line []byte
	last string
}

// maxComplaint is how many bytes of a line are kept.
const maxComplaint = 300

// Write implements io.Writer.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		rest = after
		l.line = append(l.line, line[:min(len(line), maxComplaint-len(l.line))]...)
		if whole {
			l.keep()
		}
	}
	return len(p), nil
}

// keep keeps the line if it begins like a program's final error message. Lines of a log have times, which no
// condition may have.
func (l *lastLines) keep() {
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(l.line), ""))
	l.line = l.line[:0]
	const prefix = "error:"
	if len(text) > len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
		l.last = strings.TrimSpace(text[len(prefix):])
	}
}

func (l *lastLines) error() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep()
	return l.last
}
