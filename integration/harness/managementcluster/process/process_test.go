package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

// parentEnv makes the test binary a parent that starts a child in the named directory and then waits until it is
// killed.
const parentEnv = "PROCESS_TEST_PARENT_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		beParent(dir)
	}
	os.Exit(m.Run())
}

func beParent(dir string) {
	child, err := process.Start(sleeper(dir))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(child.PID())
	select {}
}

func sleeper(dir string) process.Command {
	return process.Command{Name: "sleeper", Path: "/bin/sleep", Args: []string{"600"}, Dir: dir}
}

func TestChildDiesWithItsKilledParent(t *testing.T) {
	dir := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+dir)
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(output, &child); err != nil {
		t.Fatalf("the parent told no process id: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // its error is the kill
	await(t, "the child's death", func() bool {
		pid, err := process.Recorded(filepath.Join(dir, "sleeper.pid"))
		if err != nil {
			t.Fatal(err)
		}
		if pid != 0 && pid != child {
			t.Fatalf("recorded is process %d instead of the child %d", pid, child)
		}
		return pid == 0
	})
}

// A thread that ends also ends the children that were forked from it: golang/go#27505.
func TestChildSurvivesTheThreadsOfItsParent(t *testing.T) {
	started := make(chan *process.Process)
	thread := make(chan int)
	go onEndingThread(func() {
		thread <- syscall.Gettid()
		p, err := process.Start(process.Command{
			Name: "script", Path: "/bin/sh", Dir: t.TempDir(),
			Args: []string{"-c", "trap 'echo alive' USR1; echo ready; while :; do sleep 0.01; done"},
		})
		if err != nil {
			t.Error(err)
		}
		started <- p
	})
	tid := <-thread
	p := <-started
	if p == nil {
		t.FailNow()
	}
	defer stop(t, p)
	await(t, "the script", func() bool { return strings.Contains(p.Failure().Error(), "ready") })
	await(t, "the end of the thread", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
		return errors.Is(err, os.ErrNotExist)
	})
	if err := syscall.Kill(p.PID(), syscall.SIGUSR1); err != nil {
		t.Errorf("the child ended with the thread that asked for it: %v", err)
	}
	await(t, "a sign of life or death", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("the child ended with the thread that asked for it: %v", p.Failure())
		default:
		}
		return strings.Contains(p.Failure().Error(), "alive")
	})
}

// onEndingThread calls f on a thread that ends afterwards. The main thread, which never ends, is kept busy in the
// meantime.
func onEndingThread(f func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	if syscall.Gettid() != os.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		onEndingThread(f)
	}()
	<-done
}

func TestStopAsksBeforeItKills(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		grace  time.Duration
		want   string
	}{
		"a process that obeys":   {script: "trap 'echo obeyed; exit 0' TERM", grace: time.Minute, want: "obeyed"},
		"a process that refuses": {script: "trap 'echo refused' TERM", grace: 100 * time.Millisecond, want: "killed"},
		"no grace":               {script: "trap 'echo obeyed; exit 0' TERM", want: "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := process.Start(process.Command{
				Name: "script", Path: "/bin/sh", Dir: dir,
				Args: []string{"-c", test.script + "; echo ready; while :; do sleep 0.01; done"},
			})
			if err != nil {
				t.Fatal(err)
			}
			await(t, "the script", func() bool { return strings.Contains(p.Failure().Error(), "ready") })
			if err := p.Stop(test.grace); err != nil {
				t.Fatal(err)
			}
			if got := p.Failure().Error(); !strings.Contains(got, test.want) {
				t.Errorf("the process ended otherwise than %q:\n%s", test.want, got)
			}
			if _, err := os.Stat(filepath.Join(dir, "script.pid")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the record is still there: %v", err)
			}
		})
	}
}

func TestFailureShowsOnlyTheLogOfThisRun(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []string{"first: address already in use", "second"} {
		p, err := process.Start(process.Command{Name: "echo", Path: "/bin/sh", Args: []string{"-c", "echo " + run + "; exit 3"}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if got, want := p.PortTaken(), strings.HasPrefix(run, "first"); got != want {
			t.Errorf("%s: PortTaken is %v, want %v", run, got, want)
		}
		want := fmt.Sprintf("echo has ended (exit status 3); end of %s:\n    %s", filepath.Join(dir, "echo.log"), run)
		if got := p.Failure().Error(); got != want {
			t.Errorf("the failure is\n%s\nwant\n%s", got, want)
		}
		stop(t, p)
	}
}

func stop(t *testing.T, p *process.Process) {
	t.Helper()
	if err := p.Stop(0); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll.Eventually(t, 20*time.Second, 5*time.Millisecond, func() error {
		if !condition() {
			return errors.New("waiting for " + what)
		}
		return nil
	})
}
