// Package vm runs the real runner with real guests, for tests. Each machine has a directory in place of a container
// and, if set, a network namespace in place of a pod.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// Options define a machine. The zero value is a tiny guest behind QEMU's own network.
type Options struct {
	// Name is the guest's host name. The default is "vm".
	Name string
	// Declared makes it a virtual machine that is declared as one. Then only Directory, Args, Env and Before matter.
	Declared *Declared
	// Pod is the network that the guest takes over.
	Pod *podnet.Pod
	// Directory holds state and sockets. With a directory that was used before, the runner is a restarted one. The
	// default is new.
	Directory string
	// Image is the guest image. The default is Tiny().
	Image Image
	// BootData are its parts. The default is a small config without content.
	BootData []string
	// CPUs and Memory (MiB) default to 1 and 256.
	CPUs, Memory int
	// Args are further arguments of the runner, and Env are further environment variables ("KEY=value").
	Args, Env []string
	// Before is a shell command that runs first, in the runner's own mount namespace, so its mounts disappear with it.
	Before string
}

// VM is a runner with its machine.
type VM struct {
	// Directory holds state, sockets and the termination message.
	Directory string
	// Started is when the runner was started.
	Started time.Time

	command *exec.Cmd
	output  *transcript
	log     *transcript
	done    chan struct{}
}

// Start starts a runner. When the test ends, the runner is killed, and QEMU with it.
func Start(t testing.TB, o Options) *VM {
	t.Helper()
	o = o.complete(t)
	v := &VM{Directory: o.Directory, output: newTranscript(), log: newTranscript(), done: make(chan struct{})}
	command := append([]string{Runner(t)}, v.arguments(t, o)...)
	if o.Before != "" {
		command = append([]string{"unshare", "--mount", "sh", "-c", o.Before + ` && exec "$@"`, "sh"}, command...)
	}
	v.command = exec.Command(command[0], command[1:]...)
	if o.Pod != nil {
		v.command = o.Pod.Command(command[0], command[1:]...)
	}
	v.command.Env = append(os.Environ(), o.Env...)
	v.command.Stdout, v.command.Stderr = v.output, v.log
	if v.command.SysProcAttr == nil {
		v.command.SysProcAttr = &syscall.SysProcAttr{}
	}
	v.command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	v.start(t)
	t.Cleanup(func() {
		v.Kill()
		<-v.done
		if t.Failed() {
			t.Logf("runner:\n%s\nconsole:\n%s", v.Log(), lastOf(v.Console(), 6000))
		}
	})
	return v
}

func lastOf(text string, n int) string { return text[max(0, len(text)-n):] }

func (o Options) complete(t testing.TB) Options {
	t.Helper()
	if o.Name == "" {
		o.Name = "vm"
	}
	if o.Directory == "" {
		o.Directory = Directory(t)
	}
	if o.Image.Kernel == "" && o.Declared == nil {
		o.Image = Tiny(t)
	}
	if o.BootData == nil {
		o.BootData = []string{Pack(t, `{"ignition":{"version":"3.3.0"}}`)}
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.Memory == 0 {
		o.Memory = 256
	}
	return o
}

// Directory returns an empty directory with a short path, which sockets need. It is removed when the test ends.
func Directory(t testing.TB) string {
	t.Helper()
	path, err := os.MkdirTemp("", "vm") //nolint:usetesting // the name of a test makes the path of a socket longer than its 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}

func (v *VM) arguments(t testing.TB, o Options) []string {
	t.Helper()
	if o.Declared != nil {
		return append(o.Declared.arguments(t, v.Directory), o.Args...)
	}
	network := noderunner.NetworkUser
	if o.Pod != nil {
		network = noderunner.NetworkPod
	}
	arguments := []string{
		"runner", "--name=" + o.Name, fmt.Sprintf("--cpus=%d", o.CPUs), fmt.Sprintf("--memory=%dM", o.Memory),
		"--image=" + o.Image.json(t), "--images=" + filepath.Join(v.Directory, "images"), "--state=" + filepath.Join(v.Directory, "state"),
		"--run=" + filepath.Join(v.Directory, "run"), "--termination-log=" + terminationLog(v.Directory), "--network=" + network,
		"--acceleration=tcg", "--allow-emulation", "--image-directories=/",
	}
	for i, half := range o.BootData {
		path := filepath.Join(v.Directory, fmt.Sprintf("user_data.%d", i))
		if err := os.WriteFile(path, []byte(half), 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, []string{"--boot-data=", "--private-boot-data="}[i]+path)
	}
	return append(arguments, o.Args...)
}

func terminationLog(directory string) string { return filepath.Join(directory, "termination-log") }

// start waits for the runner in the goroutine that starts it, because podnet and the parent-death signal tie the runner
// to that thread.
func (v *VM) start(t testing.TB) {
	t.Helper()
	started := make(chan error)
	go func() {
		unlock := lockThread()
		defer unlock()
		v.Started = time.Now()
		err := v.command.Start()
		started <- err
		if err != nil {
			return
		}
		_ = v.command.Wait()
		close(v.done)
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting the runner: %v", err)
	}
}

// PID returns the id of the runner's process.
func (v *VM) PID() int { return v.command.Process.Pid }

// Console returns what the guest has printed so far.
func (v *VM) Console() string { return v.output.String() }

// Log returns what the runner has logged so far.
func (v *VM) Log() string { return v.log.String() }

// Client returns a client of the runner.
func (v *VM) Client() keeper.Client {
	return keeper.Client{Socket: filepath.Join(v.Directory, "run", keeper.SocketName)}
}

// Status returns the runner's status. The test fails when the runner returns none.
func (v *VM) Status(t testing.TB) noderunner.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var status noderunner.Status
	if err := v.Client().Status(ctx, &status); err != nil {
		t.Fatalf("asking the runner for its status: %v", err)
	}
	return status
}

// Await waits until the guest has printed text after the first skip bytes of its console, and returns the rest of that
// line. It fails when the machine ends before that.
func (v *VM) Await(t testing.TB, skip int, text string, timeout time.Duration) string {
	t.Helper()
	return v.await(t, v.output, skip, text, timeout)
}

// AwaitLog is Await for the runner's log.
func (v *VM) AwaitLog(t testing.TB, text string, timeout time.Duration) string {
	t.Helper()
	return v.await(t, v.log, 0, text, timeout)
}

func (v *VM) await(t testing.TB, in *transcript, skip int, text string, timeout time.Duration) string {
	t.Helper()
	deadline := time.After(timeout)
	for {
		more := in.changed()
		if _, rest, ok := strings.Cut(in.String()[skip:], text); ok {
			if line, _, ok := strings.Cut(rest, "\n"); ok {
				return strings.TrimRight(line, "\r")
			}
		}
		select {
		case <-more:
		case <-v.done:
			if !strings.Contains(in.String()[skip:], text) {
				t.Fatalf("the machine ended before it said %q", text)
			}
		case <-deadline:
			t.Fatalf("the machine did not say %q within %s", text, timeout)
		}
	}
}

// AwaitFirst waits for the first byte on the guest's console and returns its time.
func (v *VM) AwaitFirst(ctx context.Context, t testing.TB) time.Time {
	t.Helper()
	select {
	case <-v.output.begun:
		return v.output.first
	case <-ctx.Done():
		t.Fatal("the guest printed nothing")
	}
	return time.Time{}
}

// Type types a line on the guest's console.
func (v *VM) Type(t testing.TB, line string) {
	t.Helper()
	if err := v.Client().Type(t.Context(), line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// Terminate tells the runner to stop, as kubelet does.
func (v *VM) Terminate(t testing.TB) {
	t.Helper()
	if err := v.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Kill kills the runner without a warning. The end of a container also ends QEMU, and so does the end of the runner
// here.
func (v *VM) Kill() { _ = v.command.Process.Kill() }

// End describes how a runner ended.
type End struct {
	// Code is the exit code, or -1 when the runner was killed.
	Code int
	// Termination is the message for kubelet.
	Termination string
	// Took is how long the runner ran.
	Took time.Duration
}

// Wait waits until the runner has ended.
func (v *VM) Wait(t testing.TB, timeout time.Duration) End {
	t.Helper()
	select {
	case <-v.done:
	case <-time.After(timeout):
		t.Fatalf("the runner did not end within %s", timeout)
	}
	message, err := os.ReadFile(terminationLog(v.Directory))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return End{Code: v.command.ProcessState.ExitCode(), Termination: string(message), Took: time.Since(v.Started)}
}

// transcript is text that grows.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
	// begun is closed at first, which is the time of the first byte.
	begun chan struct{}
	first time.Time
}

func newTranscript() *transcript {
	return &transcript{more: make(chan struct{}), begun: make(chan struct{})}
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.text.Len() == 0 {
		tr.first = time.Now()
		close(tr.begun)
	}
	close(tr.more)
	tr.more = make(chan struct{})
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// changed returns a channel that is closed when there is more text.
func (tr *transcript) changed() <-chan struct{} {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.more
}
