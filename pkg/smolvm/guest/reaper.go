package guest

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// reaper waits for all children of the agent: for those that it has started, and as process 1 for those that others
// left behind. It is the only one that waits, because each child can be waited for only once.
type reaper struct {
	mu sync.Mutex
	// started are the processes of start that have not ended. A number that is in here belongs to no other process.
	started map[int]*process
}

// process is one that was started.
type process struct {
	reaper *reaper
	pid    int
	// ended is closed when it has ended, and then code is its exit code.
	ended chan struct{}
	code  int
}

func newReaper() *reaper { return &reaper{started: map[int]*process{}} }

// run reaps whenever a child has ended. It does not return.
func (r *reaper) run() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		r.reap()
		<-ended
	}
}

// reap waits for the children that have ended, and reports whether there are others.
func (r *reaper) reap() (others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return err == nil
		}
		if p := r.started[pid]; p != nil && (status.Exited() || status.Signaled()) {
			p.code = exitCode(status)
			close(p.ended)
			delete(r.started, pid)
		}
	}
}

// exitCode returns the exit code as shells have it.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// start calls fork, which starts a process and returns its number. Meanwhile no child is waited for, so that the end of the
// process is not missed.
func (r *reaper) start(fork func() (int, error)) (*process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return nil, err
	}
	p := &process{reaper: r, pid: pid, ended: make(chan struct{})}
	r.started[pid] = p
	return p, nil
}

// signal sends a signal to a process, or to its whole group, unless the process has ended.
func (p *process) signal(number unix.Signal, group bool) {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	if p.reaper.started[p.pid] != p {
		return
	}
	to := p.pid
	if group {
		to = -p.pid
	}
	_ = unix.Kill(to, number) // it is there, and may be ending
}

// endAll ends all processes of the machine but this one, which must be process 1: first with SIGTERM, and what is left
// after some time by force.
func (r *reaper) endAll(patience time.Duration) {
	for _, number := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		_ = unix.Kill(-1, number) // ESRCH: there are none
		for end := time.Now().Add(patience); r.reap() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// cannotRun is the error of a command that cannot be started, with the exit code that shells have for it.
type cannotRun struct {
	code  int
	cause error
}

func (e *cannotRun) Error() string { return e.cause.Error() }

func (e *cannotRun) Unwrap() error { return e.cause }

// notStarted returns the error of starting a program that was found.
func notStarted(program string, err error) error {
	code := agentwire.ExitNotExecutable
	if errors.Is(err, unix.ENOENT) { // its interpreter
		code = agentwire.ExitNotFound
	}
	return &cannotRun{code, &os.PathError{Op: "run", Path: program, Err: err}}
}
