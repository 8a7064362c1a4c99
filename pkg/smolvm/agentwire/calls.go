package agentwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
)

// maxGrown is how many disks a guest can say that it has grown.
const maxGrown = 16

// Ping returns what the guest says about itself.
func (c *Client) Ping(ctx context.Context) (Status, error) {
	answer, err := c.call(ctx, frame{Kind: kindPing})
	if err != nil {
		return Status{}, fmt.Errorf("asking the guest for its status: %w", err)
	}
	s := answer.Status
	known := []Workload{WorkloadNone, WorkloadRunning, WorkloadEnded}
	if s == nil || !slices.Contains(known, s.Workload) || s.ExitCode != nil && !isExitCode(*s.ExitCode) || len(s.Grown) > maxGrown {
		return Status{}, fmt.Errorf("asking the guest for its status: %w", errProtocol)
	}
	for i, serial := range s.Grown {
		s.Grown[i] = readable(serial)
	}
	return *s, nil
}

// Shutdown has the guest stop its workload, with the workload's own signal and then by force, and power off. It returns
// when all processes have ended and all data is on the disks; then the guest is about to power off.
func (c *Client) Shutdown(ctx context.Context) error {
	if _, err := c.call(ctx, frame{Kind: kindShutdown}); err != nil {
		return fmt.Errorf("shutting the guest down: %w", err)
	}
	return nil
}

func (c *Client) call(ctx context.Context, f frame) (frame, error) {
	r, done, err := c.begin(ctx, f, "")
	if err != nil {
		return frame{}, err
	}
	defer done()
	return c.wait(ctx, r)
}

// Exec runs a command, and returns its exit code when it has ended and its output was written. The exit code is
// ExitNotFound or ExitNotExecutable if it cannot be run, and ExitTimeout if it took longer than it may. Ending ctx kills
// the command with its process group.
//
// A nil stdin is empty, a nil stdout or stderr drops what is written. Processes that the command leaves in the background
// keep running, and what they write later is dropped. Exec waits for writers to return, but not for a stdin that blocks.
func (c *Client) Exec(ctx context.Context, e Exec, in io.Reader, out, errs io.Writer) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	to := stdin
	if in == nil {
		to = ""
	}
	r, done, err := c.begin(ctx, frame{Kind: kindExec, Exec: &e, Input: in != nil}, to, stdout, stderr)
	if err != nil {
		return 0, fmt.Errorf("running a command in the guest: %w", err)
	}
	defer done()
	if in != nil {
		go func() {
			if _, err := r.feed(in); err != nil && !errors.Is(err, errDone) {
				cancel(fmt.Errorf("reading the command's input: %w", err))
			}
		}()
	}
	delivered := r.deliver(cancel, out, errs)
	answer, err := c.wait(ctx, r)
	if delivered() != nil && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && !isExitCode(answer.ExitCode) {
		err = fmt.Errorf("%w: its exit code is %d", errProtocol, answer.ExitCode)
	}
	if err != nil {
		return 0, fmt.Errorf("running a command in the guest: %w", err)
	}
	return answer.ExitCode, nil
}

func isExitCode(code int) bool { return code >= 0 && code <= 255 }

// deliver copies a command's output to writers, which may be nil, and cancels the command if they fail. The returned
// function waits for the end of that, and returns the error.
func (r *request) deliver(cancel context.CancelCauseFunc, out, errs io.Writer) func() error {
	var copies sync.WaitGroup
	var failed [2]error
	for i, to := range []io.Writer{out, errs} {
		from := r.in[[]stream{stdout, stderr}[i]]
		if to == nil {
			to = io.Discard
		}
		copies.Go(func() {
			if _, err := io.Copy(to, from); err != nil {
				failed[i] = fmt.Errorf("writing the command's output: %w", err)
				cancel(failed[i])
			}
		})
	}
	return func() error {
		copies.Wait()
		return errors.Join(failed[:]...)
	}
}

// feed sends what a reader has, and says that it was all.
func (r *request) feed(from io.Reader) (int64, error) {
	n, err := io.Copy(r.out, from)
	if err == nil {
		err = r.out.finish()
	}
	return n, err
}

// ReadFile writes the content of a file to out, and returns its size. The path is absolute; links are followed, and lead
// out of the machine's root in no case. The error is ErrNotFound, ErrIsDirectory, ErrNotFile or ErrTooLarge if it is one
// of these.
func (c *Client) ReadFile(ctx context.Context, path string, out io.Writer) (int64, error) {
	n, err := c.readFile(ctx, path, out)
	if err != nil {
		return n, fmt.Errorf("reading %q in the guest: %w", path, err)
	}
	return n, nil
}

func (c *Client) readFile(ctx context.Context, path string, out io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, done, err := c.begin(ctx, frame{Kind: kindRead, Path: path}, "", content)
	if err != nil {
		return 0, err
	}
	defer done()
	n, err := io.Copy(out, io.LimitReader(r.in[content], MaxFile+1))
	if n > MaxFile {
		err = Errorf(CodeTooLarge, "it has more than %d bytes", MaxFile)
	}
	if err != nil {
		cancel(err)
	}
	answer, err := c.wait(ctx, r)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && answer.Size != n {
		err = fmt.Errorf("%w: the file has %d bytes, of which %d were sent", errProtocol, answer.Size, n)
	}
	return n, err
}

// WriteFile writes a file, and returns its size when it is on the disk. The path is absolute. The file is written beside
// its place and takes the place at once; a link there is replaced. Missing parents are created. mode is that of a new
// file; 0 keeps that of the old one, and means 0644 without one. The error is ErrIsDirectory, ErrTooLarge or ErrNoSpace if
// it is one of these.
//
// WriteFile does not wait for an in that blocks when the guest has refused the file.
func (c *Client) WriteFile(ctx context.Context, path string, mode fs.FileMode, in io.Reader) (int64, error) {
	n, err := c.writeFile(ctx, path, mode, in)
	if err != nil {
		return 0, fmt.Errorf("writing %q in the guest: %w", path, err)
	}
	return n, nil
}

func (c *Client) writeFile(ctx context.Context, path string, mode fs.FileMode, in io.Reader) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, done, err := c.begin(ctx, frame{Kind: kindWrite, Path: path, Mode: uint32(mode.Perm())}, content)
	if err != nil {
		return 0, err
	}
	defer done()
	sent := make(chan int64, 1)
	go func() {
		n, err := r.feed(in)
		if err != nil && !errors.Is(err, errDone) {
			cancel(err)
		}
		sent <- n
	}()
	answer, err := c.wait(ctx, r)
	if err != nil {
		return 0, err
	}
	select {
	case n := <-sent:
		if answer.Size != n {
			return 0, fmt.Errorf("%w: %d bytes were sent, and %d written", errProtocol, n, answer.Size)
		}
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
