package qemu

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fake is a host with a device that opens, a kernel file and a shell script instead of QEMU.
type fake struct {
	Prover
	t   *testing.T
	dir string
}

// The scripts' behavior; $dir is the fake's directory.
const (
	boots = `echo 'Linux version 6.1'; echo '[    1.3] VFS: Unable to mount root fs on unknown-block(0,0)'; exec sleep 1000`
	dies  = `echo 'SeaBIOS'; echo 'qemu: error: failed to set MSR 0x10a to 0x69' >&2; kill -ABRT $$`
	hangs = `printf 'Booting from ROM..'; sleep 1000 & echo $! >$dir/child; wait`
)

func newFake(t *testing.T, behaviour string) fake {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"kernel": "a kernel", "kvm": ""} {
		writeFile(t, filepath.Join(dir, name), []byte(content))
	}
	f := fake{t: t, dir: dir, Prover: Prover{
		Binary: filepath.Join(dir, "qemu"), Kernel: filepath.Join(dir, "kernel"), Cache: filepath.Join(dir, "cache"), BootID: "boot-1",
		Device: filepath.Join(dir, "kvm"), Timeout: startTimeout,
	}}
	script := "#!/bin/sh\n# A fake QEMU for tests: it notes its command line and does as the file says.\ndir=" + dir + "\necho \"$*\" >>$dir/starts\n. $dir/behaviour\n"
	if err := os.WriteFile(f.Binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	f.behave(behaviour)
	return f
}

// behave changes the behavior of QEMU without changing its file.
func (f fake) behave(behaviour string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "behaviour"), []byte(behaviour), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// starts returns the command lines with which it was started.
func (f fake) starts() []string {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, "starts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")[:strings.Count(string(content), "\n")]
}

func (f fake) choose(mode Mode) Choice {
	f.t.Helper()
	choice, err := f.Choose(f.t.Context(), mode)
	if err != nil {
		f.t.Fatal(err)
	}
	return choice
}

func (f fake) expect(accelerator Accelerator, starts int, reasons ...string) {
	f.t.Helper()
	choice := f.choose(ModeAuto)
	if choice.Accelerator != accelerator {
		f.t.Errorf("accelerator %s, want %s; %s", choice.Accelerator, accelerator, choice.Reason)
	}
	for _, reason := range reasons {
		if !strings.Contains(choice.Reason, reason) {
			f.t.Errorf("reason %q does not say %q", choice.Reason, reason)
		}
	}
	if !strings.HasSuffix(choice.Reason, ".") {
		f.t.Errorf("reason %q is not a sentence", choice.Reason)
	}
	if got := len(f.starts()); got != starts {
		f.t.Errorf("QEMU was started %d times, want %d", got, starts)
	}
}

func TestChoiceInModeAuto(t *testing.T) {
	for name, test := range map[string]struct {
		behaviour string
		change    func(*fake)
		want      Accelerator
		starts    int
		reasons   []string
	}{
		"a kernel that comes up proves KVM": {behaviour: boots, want: KVM, starts: 1, reasons: []string{"booted a canary"}},
		"so does one that brings its own init": {
			behaviour: `echo '[    0.9] Run /init as init process'; exec sleep 1000`, want: KVM, starts: 1,
		},
		"the end of QEMU right after the proof does no harm": {
			behaviour: `echo 'Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)'`, want: KVM, starts: 1,
		},
		"any other panic proves nothing": {
			behaviour: `echo 'Kernel panic - not syncing: Fatal exception'`, want: TCG, starts: 1, reasons: []string{"exit status 0", "Fatal exception"},
		},
		"QEMU that aborts is quoted":    {behaviour: dies, want: TCG, starts: 1, reasons: []string{"aborted", "failed to set MSR 0x10a to 0x69"}},
		"QEMU that ends without a word": {behaviour: `exit 3`, want: TCG, starts: 1, reasons: []string{"exit status 3", "it said nothing"}},
		"a kernel that hangs is waited for no longer than the time-out": {
			behaviour: hangs, change: func(f *fake) { f.Timeout = 300 * time.Millisecond }, want: TCG, starts: 1,
			reasons: []string{"not up after 300ms", "Booting from ROM.."},
		},
		"a missing device needs no canary": {
			behaviour: boots, change: func(f *fake) { f.Device = "/nonexistent/kvm"; f.Kernel = "" }, want: TCG,
			reasons: []string{"open /nonexistent/kvm: no such file or directory"},
		},
		"a result that cannot be cached is still found": {
			behaviour: boots, change: func(f *fake) { f.Cache = f.Kernel + "/cache" }, want: KVM, starts: 1,
			reasons: []string{"could not be kept", "not a directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, test.behaviour)
			if test.change != nil {
				test.change(&f)
			}
			f.expect(test.want, test.starts, test.reasons...)
		})
	}
}

func TestForcedModesSendNoCanary(t *testing.T) {
	f := newFake(t, hangs)
	for mode, want := range map[Mode]Accelerator{"kvm": KVM, "KVM": KVM, "tcg": TCG, "Tcg": TCG} {
		if got := f.choose(mode); got.Accelerator != want || got.Reason == "" {
			t.Errorf("mode %s: %v", mode, got)
		}
	}
	if starts := f.starts(); len(starts) > 0 {
		t.Errorf("QEMU was started: %v", starts)
	}
}

func TestKVMIsNotProvedWhereThereIsNothingToProveItWith(t *testing.T) {
	f := newFake(t, hangs)
	f.Unproved, f.Kernel = true, ""
	if got := f.choose(ModeAuto); got.Accelerator != KVM || !strings.Contains(got.Reason, "not proved") {
		t.Errorf("a device that opens gives %v", got)
	}
	f.Device = "/nonexistent/kvm"
	if got := f.choose(ModeAuto); got.Accelerator != TCG || !strings.Contains(got.Reason, "/nonexistent/kvm") {
		t.Errorf("a device that is missing gives %v", got)
	}
	if starts := f.starts(); len(starts) > 0 {
		t.Errorf("QEMU was started: %v", starts)
	}
}

func TestChoiceFails(t *testing.T) {
	for name, test := range map[string]struct {
		mode   Mode
		change func(*fake)
		want   string
	}{
		"KVM is demanded and there is none": {
			mode: ModeKVM, change: func(f *fake) { f.Device = "/nonexistent/kvm" },
			want: "use KVM as acceleration kvm demands: open /nonexistent/kvm: no such file or directory",
		},
		"the mode is unknown": {mode: "hvf", want: `acceleration "hvf" is none of auto, kvm and tcg`},
		"there is nothing to send a canary with": {
			change: func(f *fake) { f.Kernel = "" }, want: "prove that KVM works: there is no kernel to send a canary with",
		},
		"there is no QEMU": {change: func(f *fake) { f.Binary = "/nonexistent/qemu" }, want: "/nonexistent/qemu"},
		"QEMU cannot be started": {
			change: func(f *fake) { f.Cache = ""; f.Binary = f.Kernel }, want: "send canary: fork/exec",
		},
		"the id of the boot is no such thing": {change: func(f *fake) { f.BootID = "../boot" }, want: `"../boot" is not the id of a boot`},
		"QEMU is killed, which says nothing of KVM": {
			change: func(f *fake) { f.behave("kill -KILL $$") }, want: "send canary: its QEMU was killed",
		},
		"the machine is impossible": {change: func(f *fake) { f.MachineType = "isapc" }, want: "describe canary: Type"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, boots)
			if test.change != nil {
				test.change(&f)
			}
			if choice, err := f.Choose(t.Context(), test.mode); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("choice %v, error %v, want %q", choice, err, test.want)
			}
			f.expectKept(0)
		})
	}
}

func TestChoiceIsKeptUntilTheHostBoots(t *testing.T) {
	f := newFake(t, boots)
	f.expect(KVM, 1)
	f.behave(dies)
	f.expect(KVM, 1)

	f.BootID = filepath.Join(f.dir, "boot_id")
	writeFile(t, f.BootID, []byte("boot-2\n"))
	f.expect(TCG, 2, "MSR")
	f.expect(TCG, 2, "MSR")
	if left, err := filepath.Glob(f.Cache + "/*boot-1*"); err != nil || len(left) > 0 {
		t.Errorf("left of the earlier boot: %v, %v", left, err)
	}
}

func TestChoiceIsFoundOutAgainForAnother(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"kernel": func(f *fake) { f.Kernel = filepath.Join(f.dir, "kvm") },
		"QEMU": func(f *fake) {
			f.Binary = filepath.Join(f.dir, "newer")
			script := "#!/bin/sh\n# Another fake QEMU.\nexec " + filepath.Join(f.dir, "qemu") + "\n"
			if err := os.WriteFile(f.Binary, []byte(script), 0o700); err != nil {
				f.t.Fatal(err)
			}
		},
		"type":         func(f *fake) { f.MachineType = "pc-q35-7.2" },
		"model of CPU": func(f *fake) { f.CPUModel = "EPYC" },
		"file that makes no sense": func(f *fake) {
			files, err := filepath.Glob(f.Cache + "/*.json")
			if err != nil || len(files) != 1 {
				f.t.Fatal(files, err)
			}
			if err := os.WriteFile(files[0], []byte(`{"accelerator":"hvf","reason":"x"}`), 0o600); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, boots)
			f.expect(KVM, 1)
			change(&f)
			f.expect(KVM, 2)
		})
	}
}

func TestCanaryIsTheMachineWithNothingButItsKernel(t *testing.T) {
	f := newFake(t, boots)
	f.CPUModel, f.MachineType = "EPYC,pmu=off", "pc-q35-7.2"
	f.expect(KVM, 1)
	for _, want := range []string{
		"-accel kvm", "-cpu EPYC,pmu=off", "-machine pc-q35-7.2,", "-kernel " + f.Kernel, "-no-reboot", "console=ttyS0 ignore_loglevel panic=-1",
	} {
		if line := f.starts()[0]; !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
}

func TestPodsThatStartTogetherSendOneCanary(t *testing.T) {
	f := newFake(t, `until [ -e $dir/go ]; do sleep 0.01; done; `+boots)
	const pods = 8
	choices := make(chan Choice, pods)
	var group sync.WaitGroup
	for range pods {
		group.Go(func() {
			choice, err := f.Choose(t.Context(), "")
			if err != nil {
				t.Error(err)
			}
			choices <- choice
		})
	}
	until(t, func() bool { return len(f.starts()) > 0 })
	writeFile(t, filepath.Join(f.dir, "go"), nil)
	group.Wait()
	close(choices)
	for choice := range choices {
		if choice.Accelerator != KVM {
			t.Errorf("choice %v", choice)
		}
	}
	if starts := f.starts(); len(starts) != 1 {
		t.Errorf("QEMU was started %d times", len(starts))
	}
}

func TestCanaryThatIsCalledOffIsNotKept(t *testing.T) {
	f := newFake(t, hangs)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 2)
	choose := func() {
		_, err := f.Choose(ctx, ModeAuto)
		failed <- err
	}
	go choose()
	until(t, func() bool { return len(f.starts()) > 0 })
	go choose() // This one waits for the first one's canary.
	cancel()
	for range 2 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	f.expectKept(0)
}

func (f fake) expectKept(want int) {
	f.t.Helper()
	files, err := filepath.Glob(f.dir + "/cache/*.json")
	if err != nil || len(files) != want {
		f.t.Errorf("kept: %v, %v; want %d", files, err, want)
	}
}

func TestNothingIsLeftOfACanaryThatHangs(t *testing.T) {
	f := newFake(t, hangs)
	f.Timeout = 500 * time.Millisecond
	f.expect(TCG, 1)
	content, err := os.ReadFile(filepath.Join(f.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return gone(strings.TrimSpace(string(content))) })
}

// gone reports whether a process has ended, or waits to be reaped by a parent that is not us.
func gone(pid string) bool {
	status, err := os.ReadFile("/proc/" + pid + "/stat")
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(status), ") Z ")
}
