package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// running starts a machine if it does not run, and returns what talks to its guest. An unhealthy machine, or one that is
// being shut down, is left alone.
func (m *Manager) running(ctx context.Context, name string) (instance.Client, error) {
	one, err := m.find(name)
	if err != nil {
		return instance.Client{}, err
	}
	r := one.get()
	o := m.observe(ctx, r)
	switch p := phaseOf(o); p {
	case phaseSilent, phaseEnding:
		return instance.Client{}, api.Errorf(api.CodeUnavailable, "machine '%s' cannot be reached now: %s", name, message(r, o, p))
	case phaseDown, phaseStarting:
		if _, err := m.Start(ctx, name, api.StartRequest{}); err != nil {
			return instance.Client{}, err
		}
	}
	return m.keepers.Reach(m.store.directory(name)), nil
}

// Exec runs a command in the guest, which is started if it does not run.
func (m *Manager) Exec(ctx context.Context, name string, request api.ExecRequest, stdout, stderr io.Writer) (int, error) {
	if len(request.Command) == 0 {
		return 0, api.Errorf(api.CodeBadRequest, "command is empty: name a program and its arguments")
	}
	if request.Background || len(request.Secrets) > 0 {
		return 0, api.Errorf(api.CodeUnsupported, "background and secrets: %v", errUnsupported)
	}
	client, err := m.running(ctx, name)
	if err != nil {
		return 0, err
	}
	exec := agentwire.Exec{Command: request.Command, Directory: request.Workdir}
	for _, v := range request.Env {
		exec.Env = append(exec.Env, v.Name+"="+v.Value)
	}
	if request.TimeoutSecs != nil {
		exec.Timeout = time.Duration(max(*request.TimeoutSecs, 0)) * time.Second
	}
	code, err := client.Exec(ctx, exec, request.Stdin, stdout, stderr)
	if err != nil {
		return 0, fmt.Errorf("machine '%s': %w", name, err)
	}
	return code, nil
}

// ReadFile writes the content of a file in the guest to out.
func (m *Manager) ReadFile(ctx context.Context, name, path string, out io.Writer) error {
	client, err := m.running(ctx, name)
	if err != nil {
		return err
	}
	return client.ReadFile(ctx, path, out)
}

// WriteFile writes a file in the guest, and returns its size in bytes.
func (m *Manager) WriteFile(ctx context.Context, name, path string, in io.Reader) (int64, error) {
	client, err := m.running(ctx, name)
	if err != nil {
		return 0, err
	}
	return client.WriteFile(ctx, path, in)
}

// EgressEvents returns the last connections that the guest was refused.
func (m *Manager) EgressEvents(ctx context.Context, name string, limit int) ([]api.EgressEvent, error) {
	one, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if !m.observe(ctx, one.get()).answers {
		return []api.EgressEvent{}, nil
	}
	events, err := m.keepers.Reach(m.store.directory(name)).EgressEvents(ctx)
	if err != nil {
		return nil, err
	}
	return events.Events[max(0, len(events.Events)-limit):], nil
}

// imageError gives an error of an image its code.
func imageError(reference string, err error) error {
	var malformed ociimage.MalformedError
	var full *disk.FullError
	var invalid *ociimage.ReferenceError
	var platform *ociimage.PlatformError
	code := api.CodeImagePullFailed
	switch {
	case errors.As(err, &malformed):
		code = api.CodeImageMalformed
	case errors.As(err, &full):
		code = api.CodeDiskFull
	case errors.As(err, &invalid), errors.As(err, &platform):
		code = api.CodeBadRequest
	}
	return api.Errorf(code, "getting the image %.300s: %v", reference, err)
}

// Bounds of reading a console.
const (
	// maxTail is how much is read to find the last lines, in bytes.
	maxTail = 4 << 20
	// followEvery is how often a file is checked for more.
	followEvery = 100 * time.Millisecond
)

// Logs writes the last lines that the guest printed, and with follow those that come, until ctx ends.
func (m *Manager) Logs(ctx context.Context, name string, tail int, follow bool, out io.Writer) error {
	one, err := m.find(name)
	if err != nil {
		return err
	}
	path := filepath.Join(m.store.directory(name), instance.ConsoleName)
	file, err := openConsole(path)
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeNotFound, "machine '%s' has no log: it was never started", name)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	last, err := lastLines(file, tail)
	if err == nil {
		_, err = out.Write(last)
	}
	for err == nil && follow && ctx.Err() == nil && !one.isGone() {
		next, opened := reopened(file, path)
		// What came before the file was rotated is read first.
		if _, err = io.Copy(out, file); err != nil {
			break
		}
		if err = opened; err != nil {
			break
		}
		if next != file {
			_ = file.Close()
			file = next
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(followEvery):
		}
	}
	return err
}

func openConsole(path string) (*os.File, error) { return ownfile.Open(path, os.O_RDONLY, 0) }

// reopened returns the file at a path if that is no longer the one that is open: it was rotated.
func reopened(file *os.File, path string) (*os.File, error) {
	if disk.IsAt(file, path) {
		return file, nil
	}
	next, err := openConsole(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err != nil {
		return file, err
	}
	return next, nil
}

// lastLines reads the last lines of a file, and leaves it at its end.
func lastLines(file *os.File, lines int) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(max(0, info.Size()-maxTail), io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxTail))
	if err != nil {
		return nil, err
	}
	from := len(text)
	if from > 0 && text[from-1] == '\n' {
		from--
	}
	for range lines {
		from = bytes.LastIndexByte(text[:max(from, 0)], '\n')
		if from < 0 {
			return text, nil
		}
	}
	if lines <= 0 {
		return nil, nil
	}
	return text[from+1:], nil
}

// lastLine returns the last line that the guest printed; empty if there is none.
func lastLine(directory string) string {
	file, err := openConsole(filepath.Join(directory, instance.ConsoleName))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	text, err := lastLines(file, 5)
	if err != nil {
		return ""
	}
	last := ""
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			last = fmt.Sprintf("%.200q", line)
		}
	}
	return last
}
