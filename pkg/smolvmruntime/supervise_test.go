package smolvmruntime

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// childVariable makes the test binary a child that does what the value says, and then what its arguments are about.
const childVariable = "SMOLVM_RUNTIME_TEST_CHILD"

// child is what a supervisor of a test runs.
func child(kind string) int {
	switch kind {
	case "crash":
		fmt.Fprintln(os.Stderr, "time=now level=INFO starting")
		fmt.Fprintln(os.Stderr, "error: the disk is on fire")
		return 3
	case "end":
		return 0
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("pid", os.Getpid())
		time.Sleep(time.Hour)
	case "machine":
		// As smolvm's keepers: in its own session.
		machine := exec.Command("sleep", "600")
		machine.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := machine.Start(); err != nil {
			return 1
		}
		fmt.Println("machine", machine.Process.Pid)
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		fmt.Println("pid", os.Getpid())
		<-stop
		fmt.Println("stopped")
	case "smolvm":
		return childServes(os.Args[1])
	}
	return 0
}

// childServes serves a fake on a socket.
func childServes(socket string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := server.Listen(ctx, "unix://"+socket, false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	fmt.Println("pid", os.Getpid())
	if err := server.Serve(ctx, listener, server.New(server.Options{Machines: newFake(), Log: quiet})); err != nil {
		return 1
	}
	fmt.Println("stopped")
	return 0
}

// lines collects what children write.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// all returns what comes behind a word at the beginning of lines.
func (l *lines) all(word string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	return found
}

// pid returns the process that a line names.
func (l *lines) pid(t *testing.T, word string) int {
	t.Helper()
	eventually(t, "a line "+word, func() bool { return len(l.all(word)) > 0 })
	all := l.all(word)
	pid, err := strconv.Atoi(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// lives reports whether a process runs.
func lives(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// supervise runs a supervisor of a child, until the returned function is called or the test ends.
func supervise(t *testing.T, kind string, change func(*supervisor)) (*supervisor, *lines, func()) {
	t.Helper()
	t.Setenv(childVariable, kind)
	output := &lines{}
	s := newSupervisor([]string{os.Args[0]}, output, quiet)
	s.first, s.most, s.calm, s.grace = time.Millisecond, 4*time.Millisecond, time.Hour, 20*time.Second
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return s, output, stop
}

func TestTheReasonOfAnEnd(t *testing.T) {
	for kind, want := range map[string]string{
		"crash": "smolvm ended with exit code 3: the disk is on fire",
		"end":   "smolvm ended by itself",
	} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			starts := 0
			s, _, _ := supervise(t, kind, func(s *supervisor) {
				s.started = func() { mu.Lock(); starts++; mu.Unlock() }
			})
			eventually(t, "it is started repeatedly", func() bool { mu.Lock(); defer mu.Unlock(); return starts >= 3 })
			eventually(t, "the reason is reported", func() bool { return s.Reason() == want })
		})
	}
	t.Run("killed", func(t *testing.T) {
		s, output, _ := supervise(t, "deaf", func(s *supervisor) { s.first = time.Hour; s.most = time.Hour })
		if err := syscall.Kill(output.pid(t, "pid"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the reason is reported", func() bool { return s.Reason() == `smolvm was ended by the signal "killed"` })
	})
	t.Run("missing", func(t *testing.T) {
		s, _, _ := supervise(t, "", func(s *supervisor) { s.command = []string{"/does/not/exist"} })
		eventually(t, "the reason is reported", func() bool { return strings.Contains(s.Reason(), "smolvm does not start: ") })
	})
}

// TestThePauseGrows measures with the clock of the children's starts.
func TestThePauseGrows(t *testing.T) {
	var mu sync.Mutex
	var starts []time.Time
	supervise(t, "end", func(s *supervisor) {
		s.first, s.most = 50*time.Millisecond, 200*time.Millisecond
		s.started = func() { mu.Lock(); starts = append(starts, time.Now()); mu.Unlock() }
	})
	eventually(t, "five starts", func() bool { mu.Lock(); defer mu.Unlock(); return len(starts) >= 5 })
	mu.Lock()
	defer mu.Unlock()
	for i, atLeast := range []int64{50, 100, 200, 200} {
		if pause := starts[i+1].Sub(starts[i]); pause.Milliseconds() < atLeast {
			t.Errorf("pause %d was %s", i, pause)
		}
	}
}

// TestMachinesOutliveSmolvm: the child is asked to end, and what it started in another session lives on.
func TestMachinesOutliveSmolvm(t *testing.T) {
	_, output, stop := supervise(t, "machine", nil)
	machine, smolvm := output.pid(t, "machine"), output.pid(t, "pid")
	t.Cleanup(func() { _ = syscall.Kill(machine, syscall.SIGKILL) })
	stop()
	if len(output.all("stopped")) != 1 || lives(smolvm) {
		t.Error("smolvm was not asked to end, or has not ended")
	}
	if !lives(machine) {
		t.Error("the machine has ended")
	}
}

func TestAChildThatDoesNotEnd(t *testing.T) {
	_, output, stop := supervise(t, "deaf", func(s *supervisor) { s.grace = 50 * time.Millisecond })
	pid := output.pid(t, "pid")
	stop()
	if lives(pid) {
		t.Error("it lives")
	}
}

func TestAChildThatHangs(t *testing.T) {
	s, output, _ := supervise(t, "deaf", func(s *supervisor) { s.grace = 50 * time.Millisecond })
	first := output.pid(t, "pid")
	s.Restart()
	eventually(t, "another child", func() bool { pids := slices.Compact(output.all("pid")); return len(pids) == 2 })
	if lives(first) {
		t.Error("the first child lives")
	}
}

// TestSmolvmDoesNotOutliveAKilledAgent: the next agent finds the socket free.
func TestSmolvmDoesNotOutliveAKilledAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	agent := exec.Command(os.Args[0], socket)
	agent.Env = append(os.Environ(), childVariable+"=agent")
	output := &lines{}
	agent.Stdout, agent.Stderr = output, output
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	smolvm := output.pid(t, "pid")
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	eventually(t, "smolvm has ended", func() bool { return !lives(smolvm) })
}

// childAgent supervises a smolvm until it is killed.
func childAgent(socket string) int {
	if err := os.Setenv(childVariable, "smolvm"); err != nil {
		return 1
	}
	newSupervisor([]string{os.Args[0], socket}, os.Stdout, quiet).Run(context.Background())
	return 0
}

// TestTheReasonStaysUntilSmolvmAnswers: a child that ends repeatedly does not change the condition each time.
func TestTheReasonStaysUntilSmolvmAnswers(t *testing.T) {
	s := newSupervisor([]string{"smolvm"}, io.Discard, quiet)
	s.set(0, "smolvm ended by itself")
	s.Answered() // the socket is another's
	if s.Reason() == "" {
		t.Error("a child that does not run has answered")
	}
	s.set(7, "")
	if s.Reason() != "smolvm ended by itself" || s.Child() == 0 {
		t.Errorf("the reason is %q", s.Reason())
	}
	s.Answered()
	if s.Reason() != "" {
		t.Errorf("the reason is %q", s.Reason())
	}
}

func TestLastWords(t *testing.T) {
	for sentence, test := range map[string]struct{ text, want string }{
		"nothing":                      {"", ""},
		"a log":                        {"time=1 level=ERROR msg=x\n", ""},
		"an error":                     {"error: no disk\n", "no disk"},
		"an error as Rust writes it":   {"Error: no disk\n", "no disk"},
		"the last of two":              {"error: a\nerror: b\n", "b"},
		"an error, and what follows":   {"error: a\nbye\n", "a"},
		"an error without a line end":  {"error: a", "a"},
		"control characters":           {"error: \x1b[31ma\x00\xff\n", "[31ma"},
		"a line without an end":        {"error: " + strings.Repeat("a", 1<<20), strings.Repeat("a", maxComplaint-len("error: "))},
		"an error in the middle is no": {"an error: a\n", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			l := &lastLines{}
			for rest := test.text; rest != ""; {
				part := rest[:min(len(rest), 7)]
				rest = rest[len(part):]
				if _, err := io.WriteString(l, part); err != nil {
					t.Fatal(err)
				}
			}
			if got := l.error(); got != test.want {
				t.Errorf("%.100q", got)
			}
		})
	}
}
