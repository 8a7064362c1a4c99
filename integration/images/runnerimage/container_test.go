package runnerimage_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, p := range []*product{forNodes, forVMs} {
		if p.unpacked.directory != "" {
			_ = os.RemoveAll(p.unpacked.directory)
		}
	}
	os.Exit(code)
}

// rootfs returns the path of the image's root file system, which must not be changed. TestMain removes it.
func (p *product) rootfs(t *testing.T) string {
	t.Helper()
	i, u := p.built(t), &p.unpacked
	u.Do(func() {
		u.directory, u.err = os.MkdirTemp("", "runner-image") //nolint:usetesting // It outlives the first test.
		for _, layer := range i.layers {
			if u.err == nil {
				u.err = unpack(layer, u.directory)
			}
		}
	})
	if u.err != nil {
		t.Fatalf("unpack image: %s", u.err)
	}
	return u.directory
}

func unpack(layer []byte, directory string) error {
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackFile(filepath.Join(directory, header.Name), header, r)
		}
		if err != nil {
			return err
		}
	}
}

// unpackFile fails on what the image must not contain: hard links, devices, and files of users other than root.
func unpackFile(path string, header *tar.Header, content io.Reader) error {
	if header.Uid != 0 || header.Gid != 0 {
		return fmt.Errorf("%s belongs to %d:%d", header.Name, header.Uid, header.Gid)
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return errors.Join(os.MkdirAll(path, 0o700), os.Chmod(path, header.FileInfo().Mode()))
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, path)
	case tar.TypeReg:
		all, err := io.ReadAll(content)
		return errors.Join(err, os.WriteFile(path, all, 0o600), os.Chmod(path, header.FileInfo().Mode()))
	}
	return fmt.Errorf("%s is of type %q", header.Name, header.Typeflag)
}

// setUp creates a container of $IMAGE around the mount point $BOX, puts the files before "--" into /guest, and runs the
// command after it as process 1. All of it is in separate namespaces and disappears with its processes.
const setUp = `
mount -t tmpfs box "$BOX"
mkdir "$BOX/upper" "$BOX/work" "$BOX/root"
mount -t overlay -o "lowerdir=$IMAGE,upperdir=$BOX/upper,workdir=$BOX/work" overlay "$BOX/root"
mount -t proc proc "$BOX/root/proc"
for device in null zero full random urandom; do
  : >"$BOX/root/dev/$device"
  mount --bind "/dev/$device" "$BOX/root/dev/$device"
done
mkdir "$BOX/root/guest"
while [ "$1" != -- ]; do
  : >"$BOX/root/guest/${1##*/}"
  mount --bind "$1" "$BOX/root/guest/${1##*/}"
  shift
done
shift
exec chroot "$BOX/root" "$@"
`

// container is a command that runs in the image.
type container struct {
	output *output
	done   chan struct{}
	err    error
}

// start runs a command in a container of the image until the test ends. /guest has the files.
func (p *product) start(t *testing.T, files []string, command ...string) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("containers are made by root only: run the tests as root")
	}
	arguments := slices.Concat([]string{"--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "sh", "-ec", setUp, "sh"},
		files, []string{"--"}, command)
	ctx, cancel := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, "unshare", arguments...)
	// The image's path is the only one for its programs. The shell also finds what it needs there.
	c.Env = append([]string{"IMAGE=" + p.rootfs(t), "BOX=" + mountPoint(t)}, p.built(t).config.Config.Env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	running := &container{output: &output{more: make(chan struct{})}, done: make(chan struct{})}
	c.Stdout, c.Stderr = running.output, running.output
	go func() {
		// The parent-death signal is sent when this thread ends (https://go.dev/issue/27505).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(running.done)
		running.err = c.Run()
	}()
	t.Cleanup(func() {
		cancel()
		<-running.done
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(command, " "), running.output)
		}
	})
	return running
}

// mountPoint returns a directory that is empty, also at the end of the test, because mounts are in another namespace.
// It does not use TempDir because that path contains the name of the test, which may have characters with a meaning in
// mount options.
func mountPoint(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "container") //nolint:usetesting // See above.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(directory); err != nil {
			t.Error(err)
		}
	})
	return directory
}

// wait waits until the command ends successfully and returns its output.
func (c *container) wait(t *testing.T, timeout time.Duration) string {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(timeout):
		t.Fatalf("it has not ended after %s", timeout)
	}
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c.output.String()
}

// await waits until the command has printed text.
func (c *container) await(t *testing.T, text string, timeout time.Duration) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		more := c.output.changed()
		if strings.Contains(c.output.String(), text) {
			return
		}
		select {
		case <-more:
		case <-c.done:
			if !strings.Contains(c.output.String(), text) {
				t.Fatalf("it ended before it said %q: %v", text, c.err)
			}
			return
		case <-deadline:
			t.Fatalf("it has not said %q after %s", text, timeout)
		}
	}
}

// output is text that grows.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// changed returns a channel that is closed when there is more text.
func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.more
}
