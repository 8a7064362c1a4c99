package machine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// trouble is a machine that does not start.
type trouble struct {
	options vm.Options
	reason  keeper.Reason
	// message is the part of the message that says what to fix.
	message string
}

func troubles(t *testing.T) map[string]trouble {
	t.Helper()
	valid := vm.Pack(t, `{"ignition":{"version":"3.3.0"}}`)
	tiny := vm.Tiny(t)
	locked := lockedPath(t)
	return map[string]trouble{
		"no boot data": {
			vm.Options{Args: []string{"--boot-data=/nowhere/user_data"}}, keeper.ReasonBootDataMissing, "/nowhere/user_data: no such file or directory",
		},
		"empty boot data": {vm.Options{BootData: []string{""}}, keeper.ReasonBootDataMissing, "is empty"},
		"a private half that is missing": {
			vm.Options{Args: []string{"--private-boot-data=/nowhere/user_data"}}, keeper.ReasonBootDataMissing, "/nowhere/user_data",
		},
		"boot data that is not base64": {vm.Options{BootData: []string{"{}"}}, keeper.ReasonBootDataInvalid, "boot data is not base64"},
		"corrupt gzip": {
			vm.Options{BootData: []string{valid[:len(valid)/2/4*4]}}, keeper.ReasonBootDataInvalid, "boot data is damaged",
		},
		"invalid Ignition": {
			vm.Options{BootData: []string{vm.Pack(t, `{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"etc/x"}]}}`)}},
			keeper.ReasonBootDataInvalid, "path not absolute",
		},
		"halves that contradict each other": {
			vm.Options{BootData: []string{
				vm.Pack(t, `{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/a/b"}]}}`),
				vm.Pack(t, `{"ignition":{"version":"3.3.0"},"storage":{"links":[{"path":"/etc/a","target":"/x"}]}}`),
			}},
			keeper.ReasonBootDataInvalid, "contradict each other",
		},
		"an image with another checksum": {
			vm.Options{Args: []string{"--image=" + image(tiny.Kernel, strings.Repeat("0", 64), "")}}, keeper.ReasonImageMismatch, strings.Repeat("0", 64),
		},
		"an image with an unknown signature": {
			vm.Options{Args: []string{"--image=" + image(tiny.Kernel, "", "file://"+signature(t))}}, keeper.ReasonImageMismatch, "signature",
		},
		"an image that is not there": {
			vm.Options{Args: []string{"--image=" + image("/nowhere/vmlinuz", "", "")}}, keeper.ReasonImageUnavailable, "/nowhere/vmlinuz",
		},
		"a disk that does not fit": {
			vm.Options{Args: []string{"--disk=rootfs:5G", "--state=/mnt"}, Before: "mount -t tmpfs -o size=256k none /mnt"},
			keeper.ReasonDiskFull, "rootfs",
		},
		"a volume that another machine uses": {
			vm.Options{Args: []string{"--lock-timeout=1s", "--etcd=" + locked}}, keeper.ReasonDiskLocked, locked,
		},
		"a tap that is refused": {
			vm.Options{Pod: podnet.NewHost(t).NewPod(t, podnet.PodOptions{}), Before: "mount --bind /dev/null /dev/net/tun"},
			keeper.ReasonNetworkFailed, "tap",
		},
		"no QEMU": {vm.Options{Args: []string{"--qemu=qemu-nowhere"}}, keeper.ReasonQEMUMissing, "qemu-nowhere"},
		"a QEMU that refuses its arguments": {
			vm.Options{Args: []string{"--qemu-arg=-nonsense"}}, keeper.ReasonQEMURefused, "nonsense",
		},
		"no KVM where there has to be one": {
			vm.Options{Args: []string{"--acceleration=kvm"}, Before: "mount -t tmpfs none /dev"}, keeper.ReasonAccelerationUnavailable, "/dev/kvm",
		},
		"emulation that is not allowed": {
			vm.Options{Args: []string{"--allow-emulation=false"}}, keeper.ReasonAccelerationUnavailable, "service.machine.allowemulation",
		},
		"an image anywhere on the host": {
			vm.Options{Args: []string{"--image-directories=/srv/images"}}, keeper.ReasonImageUnavailable, "service.machine.imagedirectories",
		},
		"settings without sense": {vm.Options{Args: []string{"--memory=0M"}}, keeper.ReasonSettingsInvalid, "memory"},
	}
}

func TestTroubleEndsWithItsReason(t *testing.T) {
	for name, test := range troubles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vm.Start(t, test.options)
			end := v.Wait(t, runnerEnds)
			if end.Code != test.reason.ExitCode() {
				t.Errorf("the exit code is %d, want %d of %s", end.Code, test.reason.ExitCode(), test.reason)
			}
			first, _, _ := strings.Cut(end.Termination, "\n")
			if !strings.HasPrefix(first, string(test.reason)+": ") || !strings.Contains(first, test.message) {
				t.Errorf("the message is %q, want %s with %q", first, test.reason, test.message)
			}
			if _, err := os.Stat(filepath.Join(v.Directory, "run", "ignition.json")); err == nil {
				t.Error("the merged boot data is left behind")
			}
			if !strings.Contains(v.Log(), test.message) {
				t.Errorf("the log does not say %q", test.message)
			}
		})
	}
}

func TestQEMUThatCrashesEndsTheRunner(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	signalQEMU(t, v, syscall.SIGSEGV)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonQEMUCrashed, "segmentation fault", "tiny: ready")
}

func TestGuestThatIgnoresThePowerButtonIsCutOff(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Image: vm.Tiny(t).With("tiny.ignore_powerdown"), Args: []string{"--powerdown-timeout=3s"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonGuestKilled, "did not shut down within 3s; QEMU quit", "tiny: powerdown ignored")
}

func TestQEMUThatDoesNotEvenQuitIsKilled(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--powerdown-timeout=2s", "--quit-timeout=2s"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	signalQEMU(t, v, syscall.SIGSTOP)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonGuestKilled, "QEMU, which did not quit within 2s, was killed", "tiny: ready")
}

func TestQEMUThatDoesNotAnswerIsKilled(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--monitor-timeout=3s"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	signalQEMU(t, v, syscall.SIGSTOP)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonMonitorSilent, "has not answered for 3s; it was killed", "tiny: ready")
}

func TestQEMUThatNeverAnswersIsKilled(t *testing.T) {
	t.Parallel()
	silent := filepath.Join(vm.Directory(t), "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	v := vm.Start(t, vm.Options{Args: []string{"--qemu=" + silent, "--start-timeout=2s"}})
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonMonitorSilent, "QEMU runs and does not answer", "")
}

// TestKVMThatLiesIsNotUsed uses a device in place of /dev/kvm that can be opened, and a QEMU that runs no guest on it.
// The machine is emulated, and the status says why.
func TestKVMThatLiesIsNotUsed(t *testing.T) {
	t.Parallel()
	liar := filepath.Join(vm.Directory(t), "qemu")
	const script = "#!/bin/sh\ncase \"$*\" in *'-accel kvm'*|*accel=kvm*) echo 'KVM: it was a lie' >&2; exit 1;; esac\nexec qemu-system-x86_64 \"$@\"\n"
	if err := os.WriteFile(liar, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	v := vm.Start(t, vm.Options{
		Args: []string{"--acceleration=auto", "--qemu=" + liar}, Before: "mount -t tmpfs none /mnt && mknod /mnt/zero c 1 5 && mknod /mnt/urandom c 1 9 && mknod /mnt/null c 1 3 && mknod /mnt/kvm c 1 3 && mount --bind /mnt /dev",
	})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	status := v.Status(t)
	if status.Accelerator != "tcg" || !strings.Contains(status.AcceleratorReason, "KVM: it was a lie") {
		t.Errorf("the accelerator is %s, because %q", status.Accelerator, status.AcceleratorReason)
	}
}

func TestQEMUThatCrashesWhileTheGuestShutsDownIsNoShutdown(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Image: vm.Tiny(t).With("tiny.ignore_powerdown")})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Terminate(t)
	v.Await(t, 0, "tiny: powerdown ignored", goesDown)
	signalQEMU(t, v, syscall.SIGKILL)
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonQEMUCrashed, "killed", "tiny: ready")
}

func TestQEMUThatStandsStillForAWhileInAHeldMachineIsShutDownInOrder(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Args: []string{"--hold-timeout=10m", "--monitor-timeout=2s"}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Terminate(t)
	v.AwaitLog(t, "msg=Held", runnerEnds)
	signalQEMU(t, v, syscall.SIGSTOP)
	pid := v.Status(t).PID
	for begin := time.Now(); time.Since(begin) < 6*time.Second; {
		begun := time.Now()
		if status := v.Status(t); status.Ready || !status.Live || time.Since(begun) > 5*time.Second {
			t.Errorf("after %s the status is %+v", time.Since(begun), status)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := v.Client().Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

func TestStoppedMachineIsShutDownInOrder(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	if _, err := v.Client().QMP(t.Context(), []byte(`{"execute":"stop"}`)); err != nil {
		t.Fatal(err)
	}
	if status := v.Status(t); status.Ready || !status.Live {
		t.Errorf("the stopped machine is %+v", status)
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

func TestQEMUThatIsToldToQuitByOthers(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	_, _ = v.Client().QMP(t.Context(), []byte(`{"execute":"quit"}`))
	expectEnd(t, v.Wait(t, runnerEnds), keeper.ReasonQEMUCrashed, "another process (host-qmp-quit)", "tiny: ready")
}

// TestSignalsThatEndOtherPrograms: these signals tell a runner to stop.
func TestSignalsThatEndOtherPrograms(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			v := vm.Start(t, vm.Options{})
			v.Await(t, 0, "tiny: ready", tinyBoots)
			if err := syscall.Kill(v.PID(), syscall.SIGPIPE); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(v.PID(), signal); err != nil {
				t.Fatal(err)
			}
			expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
		})
	}
}

func TestDiskThatIsFullForAWhile(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{
		Args: []string{"--disk=rootfs:200M", "--state=/mnt"}, Image: vm.Tiny(t).With("tiny.disk=rootfs"),
		Before: "mount -t tmpfs -o size=24m none /mnt",
	})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Type(t, "sh dd if=/dev/urandom of=/mnt/rootfs/big bs=1M count=60; sync; echo all written")
	poll.Eventually(t, tinyBoots, 100*time.Millisecond, func() error {
		if status := v.Status(t); status.Machine != "io-error" {
			return fmt.Errorf("the machine whose disk is full is %+v", status)
		}
		return nil
	})
	if status := v.Status(t); status.Ready || !status.Live || !strings.Contains(status.Unready, "io-error") {
		t.Errorf("the machine whose disk is full is %+v", status)
	}
	grow := exec.Command("nsenter", "--mount", fmt.Sprintf("--target=%d", v.PID()), "mount", "-o", "remount,size=300m", "/mnt")
	if output, err := grow.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	v.Await(t, 0, "all written", tinyBoots)
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "tiny: powerdown")
}

func TestSecondRunnerLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
	v := vm.Start(t, vm.Options{Pod: pod})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Await(t, 0, "tiny: address=", tinyBoots)
	second := vm.Start(t, vm.Options{Pod: pod, Args: []string{"--lock-timeout=1s", "--state=" + filepath.Join(v.Directory, "state")}})
	expectEnd(t, second.Wait(t, runnerEnds), keeper.ReasonDiskLocked, filepath.Join(v.Directory, "state"), "")
	third := vm.Start(t, vm.Options{Args: []string{"--run=" + filepath.Join(v.Directory, "run")}})
	expectEnd(t, third.Wait(t, runnerEnds), keeper.ReasonDiskLocked, "another runner answers", "")
	if status := v.Status(t); !status.Ready {
		t.Errorf("the first machine is %+v", status)
	}
}

func expectEnd(t *testing.T, end vm.End, reason keeper.Reason, message, console string) {
	t.Helper()
	first, rest, _ := strings.Cut(end.Termination, "\n")
	if end.Code != reason.ExitCode() || !strings.HasPrefix(first, string(reason)+": ") || !strings.Contains(first, message) {
		t.Errorf("it ended with code %d and %q, want %d and %s with %q", end.Code, first, reason.ExitCode(), reason, message)
	}
	if !strings.Contains(rest, console) || len(end.Termination) > 4096 {
		t.Errorf("the message has %d bytes and does not hold %q of the console:\n%s", len(end.Termination), console, rest)
	}
}

func signalQEMU(t *testing.T, v *vm.VM, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(v.Status(t).PID, signal); err != nil {
		t.Fatal(err)
	}
}

func lockedPath(t *testing.T) string {
	t.Helper()
	path := vm.Directory(t)
	lock, err := disk.Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return path
}

func image(kernel, sum, signatureURL string) string {
	return fmt.Sprintf(`{"name":"broken","kernel":{"url":"file://%s","sha256":%q,"signatureURL":%q},"initrd":{"url":"file://%s"}}`, kernel, sum, signatureURL, kernel)
}

// signature returns a file in place of a signature.
func signature(t *testing.T) string {
	t.Helper()
	path := filepath.Join(vm.Directory(t), "vmlinuz.sig")
	sum := sha256.Sum256(nil)
	if err := os.WriteFile(path, []byte(hex.EncodeToString(sum[:])), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGuestThatHangsAtItsBeginningIsReset: its kernel waits forever for a root file system that does not exist, and has
// written and sent nothing yet.
func TestGuestThatHangsAtItsBeginningIsReset(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{
		Pod:   podnet.NewHost(t).NewPod(t, podnet.PodOptions{}),
		Image: vm.Tiny(t).With("rdinit=/none", "root=/dev/none", "rootwait"),
		Args:  []string{"--boot-timeout=4s", "--monitor-timeout=4s", "--powerdown-timeout=1s"},
	})
	const said = "neither written to a disk nor sent a packet since its last start or reset"
	v.AwaitLog(t, said+`" patience=4s next=8s`, time.Minute)
	v.AwaitLog(t, said+`" patience=8s next=16s`, time.Minute)
	if status := v.Status(t); status.State != keeper.StateRunning || status.Awakened != 2 || status.Resets < 1 {
		t.Errorf("the status is %+v", status)
	}
}
