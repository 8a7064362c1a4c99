package machine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

func TestGuestThatShutsDownEndsTheRunner(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Type(t, "poweroff")
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonGuestShutDown, "the guest shut itself down", "tiny: ready")
}

func TestGuestThatRebootsKeepsTheRunner(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	for i := range 2 {
		v.Await(t, lastReady(v.Console(), i), "tiny: ready", tinyBoots)
		before := v.Status(t)
		if before.Resets < i || before.Resets > 0 && i == 0 || before.State != keeper.StateRunning {
			t.Fatalf("after %d reboots the status is %+v", i, before)
		}
		v.Type(t, "reboot")
	}
	v.Await(t, lastReady(v.Console(), 2), "tiny: ready", tinyBoots)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

// lastReady returns the position on the console after the guest has been ready n times.
func lastReady(console string, n int) int {
	at := 0
	for range n {
		i := strings.Index(console[at:], "tiny: ready")
		if i < 0 {
			return len(console)
		}
		at += i + len("tiny: ready")
	}
	return at
}

func TestMachineIsHeldUntilItIsReleased(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--hold-timeout=10m"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Terminate(t)
	v.AwaitLog(t, "msg=Held", runnerEnds)
	// A second SIGTERM changes nothing.
	v.Terminate(t)
	status := v.Status(t)
	if status.State != keeper.StateHeld || !status.Live || status.HeldUntil == nil || time.Until(*status.HeldUntil) < 9*time.Minute {
		t.Errorf("the held machine is %+v", status)
	}
	v.Await(t, len(v.Console()), "tiny: cpus=", goesDown)
	for range 2 {
		if err := v.Client().Release(t.Context()); err != nil {
			break
		}
	}
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

func TestMachineIsHeldNoLongerThanItsTime(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--hold-timeout=2s"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	begin := time.Now()
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("it was held for less than two seconds: %s", took)
	}
}

func TestMachineThatIsReleasedBeforeIsNotHeld(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--hold-timeout=10m"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	if err := v.Client().Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "")
}

func TestMachineThatIsStillBootingIsPoweredDown(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.AwaitLog(t, "msg=Running", tinyBoots)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, tinyBoots), keeper.ReasonPoweredDown, "the guest shut down", "")
}

func TestRunnerThatIsStoppedBeforeItsMachineRunsEndsAtOnce(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--qemu=/bin/cat"}, Before: "true"})
	v.AwaitLog(t, "step=\"starting QEMU\"", runnerEnds)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonPoweredDown, "stopped before it was started", "")
}

func TestControlSocket(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	raw, err := v.Client().QMP(ctx, []byte(`{"execute":"query-status"}`))
	var answer struct{ Return struct{ Status string } }
	if err != nil || json.Unmarshal(raw, &answer) != nil || !strings.Contains(string(raw), `"running"`) {
		t.Errorf("query-status answers %s, %v", raw, err)
	}
	if raw, err := v.Client().QMP(ctx, []byte(`{"execute":"nonsense"}`)); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("nonsense answers %s, %v", raw, err)
	}
	if raw, err := v.Client().QMP(ctx, []byte(`nonsense`)); err == nil {
		t.Errorf("what is no JSON answers %s", raw)
	}
	tail, err := v.Client().Console(ctx)
	if err != nil || !strings.Contains(string(tail), "tiny: ready") {
		t.Errorf("the console kept %q, %v", tail, err)
	}
	v.Type(t, "sh echo typed $((40 + 2))")
	v.Await(t, 0, "typed 42", goesDown)

	console, err := v.Client().Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	if _, err := io.WriteString(console, "sh echo attached $((20 + 1))\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(console)
	seen := ""
	for lines.Scan() && !strings.Contains(seen, "attached 21") {
		seen += lines.Text() + "\n"
	}
	if !strings.Contains(seen, "tiny: ready") || !strings.Contains(seen, "typed 42") {
		t.Errorf("what is attached sees\n%s", seen)
	}
}

// TestMachineWaitsForTheOneThatItReplaces: a ReplicaSet starts a new pod while the old one still shuts down.
func TestMachineWaitsForTheOneThatItReplaces(t *testing.T) {
	t.Parallel()
	volume := "--etcd=" + vm.Directory(t)
	first := vm.Start(t, vm.Options{Args: []string{volume}})
	first.Await(t, 0, "tiny: ready", tinyBoots)
	second := vm.Start(t, vm.Options{Args: []string{volume}})
	second.AwaitLog(t, "waiting for 10m0s at most", runnerEnds)
	if status := second.Status(t); !status.Live || status.Ready || !strings.Contains(status.Unready, strings.TrimPrefix(volume, "--etcd=")) {
		t.Errorf("the machine that waits is %+v", status)
	}
	first.Terminate(t)
	expectEnd(t, first.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "")
	second.Await(t, 0, "tiny: ready", tinyBoots)
}
