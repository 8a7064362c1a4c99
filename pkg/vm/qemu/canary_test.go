package qemu

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// On a machine where KVM works KVM is chosen, and where /dev/kvm is missing or does not work TCG is. Which of them this
// machine is, is found out by starting QEMU by hand.
func TestCanaryOnThisMachine(t *testing.T) {
	binary := installedQEMU(t)
	kernel := guestFile(t, "GUEST_KERNEL", "vmlinuz")
	const timeout, slack = 10 * time.Second, 10 * time.Second
	for _, model := range []string{"host", "qemu64"} {
		t.Run(model, func(t *testing.T) {
			want := KVM
			if !runsUnderKVM(t, binary, kernel, model, timeout) {
				want = TCG
			}
			p := Prover{Kernel: kernel, CPUModel: model, Cache: t.TempDir(), Timeout: timeout}
			start := time.Now()
			first, err := p.Choose(t.Context(), ModeAuto)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s after %s: %s", first.Accelerator, time.Since(start).Round(time.Millisecond), first.Reason)
			if first.Accelerator != want {
				t.Errorf("accelerator %s, want %s: %s", first.Accelerator, want, first.Reason)
			}
			if took := time.Since(start); took > timeout+slack {
				t.Errorf("it took %s", took)
			}
			if _, err := os.Stat("/dev/kvm"); err != nil && !strings.Contains(first.Reason, "open /dev/kvm: no such file or directory") {
				t.Errorf("reason %q does not say that there is no device", first.Reason)
			}
			again, err := p.Choose(t.Context(), ModeAuto)
			if err != nil || again != first {
				t.Errorf("the second time: %v, %v", again, err)
			}
		})
	}
}

// runsUnderKVM boots the kernel without any of this package's code.
func runsUnderKVM(t *testing.T, binary, kernel, model string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, binary, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "kvm", "-cpu", model, "-m", "512",
		"-kernel", kernel, "-append", "console=ttyS0 panic=-1", "-no-reboot", "-serial", "stdio")
	var console bytes.Buffer
	command.Stdout = &console
	_ = command.Run()
	return strings.Contains(console.String(), "Unable to mount root fs")
}

// The kernel certainly runs under TCG, so the canary must report no problem.
func TestCanaryProvesAnAcceleratorThatWorks(t *testing.T) {
	c := canary{
		binary: installedQEMU(t), kernel: guestFile(t, "GUEST_KERNEL", "vmlinuz"), accelerator: TCG, timeout: bootTimeout,
	}
	if problem, err := c.send(t.Context()); problem != "" || err != nil {
		t.Errorf("problem %q, error %v", problem, err)
	}
}

func TestCanaryOfSomethingThatIsNoKernel(t *testing.T) {
	kernel := t.TempDir() + "/kernel"
	writeFile(t, kernel, []byte("no kernel"))
	c := canary{binary: installedQEMU(t), kernel: kernel, accelerator: TCG, timeout: startTimeout}
	if problem, err := c.send(t.Context()); !strings.Contains(problem, "exit status 1") || err != nil {
		t.Errorf("problem %q, error %v", problem, err)
	}
}
