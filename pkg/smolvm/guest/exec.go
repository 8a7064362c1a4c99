package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

const (
	// quiet is how long a pipe has nothing before it is taken as empty after its process has ended.
	quiet = 20 * time.Millisecond
	// pipeSize is what a pipe holds (pipe(7)). Processes can make theirs larger; what is beyond that is lost if they leave
	// others behind that write to it.
	pipeSize = 64 << 10
)

// executor runs commands of the host.
type executor struct {
	root   *Root
	reaper *reaper
	spawn  func(func())
	// base has what a command does not set itself.
	base command
}

// run runs a command as agentwire.Client.Exec describes it.
func (x *executor) run(ctx context.Context, e agentwire.Exec, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if len(e.Command) == 0 {
		return 0, agentwire.Errorf(agentwire.CodeInvalid, "there is no command")
	}
	for _, text := range append(append([]string{e.Directory}, e.Command...), e.Env...) {
		if strings.ContainsRune(text, 0) {
			return 0, agentwire.Errorf(agentwire.CodeInvalid, "a zero byte is in the command or its environment")
		}
	}
	pipes, err := openPipes(stdin != nil)
	if err != nil {
		return 0, err
	}
	p, err := x.root.start(x.reaper, x.command(e, pipes))
	pipes.closeTheirs()
	if err != nil {
		pipes.closeOurs()
		return refused(err, stderr)
	}
	if stdin != nil {
		defer pipes.ours[0].Close() //nolint:errcheck // the command has ended
		x.spawn(func() {
			_, _ = io.Copy(pipes.ours[0], stdin) // EPIPE: the command reads no more
			_ = pipes.ours[0].Close()
		})
	}
	var copies sync.WaitGroup
	for i, to := range []io.Writer{stdout, stderr} {
		copies.Add(1)
		x.spawn(func() {
			defer copies.Done()
			from := pipes.ours[i+1]
			_ = relay(from, to, p.ended) // the end of ctx tells the host
			_ = from.Close()
		})
	}
	code, err := p.wait(ctx, e.Timeout)
	copies.Wait()
	return code, err
}

// command completes a command by what it does not set.
func (x *executor) command(e agentwire.Exec, pipes *pipes) command {
	c := x.base
	c.arguments, c.files = e.Command, pipes.theirs
	c.environment = ociprocess.Process{Environment: c.environment}.Override(ociprocess.Process{Environment: e.Env}).Environment
	if e.Directory != "" {
		c.directory, c.makeDirectory = e.Directory, false
	}
	if e.User != "" {
		c.user = e.User
	}
	return c
}

// refused says why a command was not started, as a shell does.
func refused(err error, stderr io.Writer) (int, error) {
	var because *cannotRun
	if !errors.As(err, &because) {
		return 0, err
	}
	if _, err := fmt.Fprintf(stderr, "smolvm: %s\n", because); err != nil {
		return 0, err
	}
	return because.code, nil
}

// wait returns the exit code of a process. It is killed with its group when ctx ends or the time is over; 0 is no limit.
func (p *process) wait(ctx context.Context, limit time.Duration) (int, error) {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-p.ended:
		return p.code, nil
	case <-late:
		p.signal(unix.SIGKILL, true)
		<-p.ended
		return agentwire.ExitTimeout, nil
	case <-ctx.Done():
		p.signal(unix.SIGKILL, true)
		<-p.ended
		return 0, context.Cause(ctx)
	}
}

// relay copies what comes out of a pipe, to its end or until the process has ended and all that it can have written was
// copied: processes that it leaves behind may hold the pipe open for as long as they live. The file stays open. The error
// is errLeft if there are such processes.
func relay(from *os.File, to io.Writer, ended <-chan struct{}) error {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ended:
			_ = from.SetReadDeadline(time.Now()) // a pipe has deadlines
		case <-stop:
		}
	}()
	_, err := io.Copy(to, from)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	buffer := make([]byte, 4096)
	for left := pipeSize; left >= 0; { // an end comes after all of it
		if err := from.SetReadDeadline(time.Now().Add(quiet)); err != nil {
			return err
		}
		n, err := from.Read(buffer)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		if left -= n; errors.Is(err, io.EOF) {
			return nil
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			return err
		}
	}
	return errLeft
}

// errLeft says that a process has left others behind that could still write.
var errLeft = errors.New("the output is still open")

// pipes are the standard files of a command: its own ends, and the agent's.
type pipes struct{ theirs, ours [3]*os.File }

func openPipes(input bool) (*pipes, error) {
	p := &pipes{}
	var err error
	for i := 1; i < 3 && err == nil; i++ {
		p.ours[i], p.theirs[i], err = os.Pipe()
	}
	if err == nil && input {
		p.theirs[0], p.ours[0], err = os.Pipe()
	} else if err == nil {
		p.theirs[0], err = os.Open(os.DevNull)
	}
	if err != nil {
		p.closeTheirs()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

func (p *pipes) closeTheirs() { closeAll(p.theirs[:]) }

func (p *pipes) closeOurs() { closeAll(p.ours[:]) }

func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			_ = file.Close() // nothing was written to it
		}
	}
}
