package guestnet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// Environment of the runner that TestRunnerThatIsKilled starts.
const (
	killVariable  = "GUESTNET_TEST_KILL_AFTER"
	stateVariable = "GUESTNET_TEST_STATE"
)

func TestMain(m *testing.M) {
	if step, ok := os.LookupEnv(killVariable); ok {
		runUntilKilled(step)
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// runUntilKilled takes over the network of the process's namespace, gives it back, and kills the process after the
// given step.
func runUntilKilled(last string) {
	o := testOptions()
	o.StateFile = os.Getenv(stateVariable)
	o.after = func(step string) {
		if step == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	n, err := Take(context.Background(), o)
	if err == nil {
		err = n.Close()
	}
	if err != nil {
		println(err.Error())
	}
}

// stepsOf returns the steps of taking over and giving back, in order.
func stepsOf(t *testing.T, pod *podnet.Pod) []string {
	t.Helper()
	var steps []string
	o := Options{StateFile: filepath.Join(t.TempDir(), "state"), after: func(step string) { steps = append(steps, step) }}
	if err := mustTake(t, pod, o).Close(); err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestRunnerThatIsKilledIsRepairedByTheNext(t *testing.T) {
	steps := stepsOf(t, podnet.NewHost(t).NewPod(t, podnet.PodOptions{IPv6: true}))
	for _, want := range []string{"write state", "mark the interface", "add the qdisc", "add " + TapName, "address the runner", "remove the mark", "remove the state"} {
		if !slices.Contains(steps, want) {
			t.Errorf("the steps %q lack %q", steps, want)
		}
	}
	for _, options := range []podnet.PodOptions{{IPv6: true}, {IPv6: true, PointToPoint: true}} {
		for _, step := range steps {
			name := "on a bridge, after: " + step
			if options.PointToPoint {
				name = "on its own link, after: " + step
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkRepair(t, podnet.NewHost(t).NewPod(t, options), step)
			})
		}
	}
}

// checkRepair kills a runner after a step and lets the next one take over and give back.
func checkRepair(t *testing.T, pod *podnet.Pod, step string) {
	t.Helper()
	o := testOptions()
	o.StateFile = filepath.Join(t.TempDir(), "state")
	before := look(t, pod)
	n := mustTake(t, pod, o)
	taken := look(t, pod)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, look(t, pod)); diff != "" {
		t.Fatalf("without being killed: %s", diff)
	}
	killRunner(t, pod, o.StateFile, step)
	n = mustTake(t, pod, o)
	if diff := cmp.Diff(taken, look(t, pod)); diff != "" {
		t.Errorf("taken over again: %s", diff)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, look(t, pod)); diff != "" {
		t.Errorf("given back: %s", diff)
	}
	if _, err := os.Stat(o.StateFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state file is still there: %v", err)
	}
}

func killRunner(t *testing.T, pod *podnet.Pod, stateFile, step string) {
	t.Helper()
	runner := pod.CommandContext(t.Context(), os.Args[0])
	runner.Env = append(os.Environ(), killVariable+"="+step, stateVariable+"="+stateFile)
	output, err := runner.CombinedOutput()
	exit, isExit := errorAs[*exec.ExitError](err)
	if !isExit || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the runner was not killed: %v\n%s", err, output)
	}
}

// look lists everything in a pod's namespace that a takeover could change: as printed by ip and tc, one line each,
// without what changes by itself.
func look(t *testing.T, pod *podnet.Pod) []string {
	t.Helper()
	output := pod.Run(t, "sh", "-ec", `
		ip -br link | sed -E 's/ (UP|DOWN|UNKNOWN) //; s/NO-CARRIER,//; s/,LOWER_UP//'
		ip -o link | grep -o ' master [^ ]*\|alias.*' || true
		ip -o addr | sed -E 's/^[0-9]+: //'
		cat /proc/sys/net/ipv6/conf/eth0/addr_gen_mode || true
		ip -4 route show table all | sed 's/ linkdown//'
		ip -6 route show table all | sed '/table local/d; s/ linkdown//'
		tc qdisc show dev eth0
		tc filter show dev eth0 ingress
		tc filter show dev eth0 egress`)
	var lines []string
	for line := range strings.Lines(output) {
		// An address that is given back skips duplicate address detection, and its flags show that.
		line = strings.ReplaceAll(line, " nodad", "")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines)
	return lines
}
