package machine_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// pairs is how often each is measured. The two alternate, so both meet the same load of the machine.
const pairs = 11

// BenchmarkOverhead compares the runner with bare QEMU with the arguments that the runner uses, but for what its QEMU
// inherits: bare QEMU opens that itself.
//
// The start is measured until the first byte that the guest's kernel prints, and the shutdown until the process has
// ended: for the runner from SIGTERM, for bare QEMU from the power button.
func BenchmarkOverhead(b *testing.B) {
	for b.Loop() {
		compare(b, pairs).report(b)
	}
}

// TestOverheadInSmall keeps that benchmark working: it has one pair and compares nothing.
func TestOverheadInSmall(t *testing.T) {
	t.Parallel()
	compare(t, 1).wasMeasured(t, 1)
}

func compare(b testing.TB, pairs int) *overhead {
	b.Helper()
	base, pod := vm.Directory(b), podnet.NewHost(b).NewPod(b, podnet.PodOptions{})
	options := vm.Options{
		Directory: base, Pod: pod, Image: vm.Tiny(b).With("earlyprintk=serial,ttyS0,115200", "loglevel=8"), Args: []string{"--disk=rootfs:1G"},
	}
	arguments := bareArguments(b, options)
	o := &overhead{}
	for range pairs {
		o.bare.add(runBare(b, pod, base, arguments))
		o.runner.add(runRunner(b, options))
	}
	return o
}

// overhead is how long bare QEMU and the runner took, pair by pair.
type overhead struct{ bare, runner durations }

// durations are the times of the starts and of the ends.
type durations struct{ start, end []time.Duration }

func (d *durations) add(start, end time.Duration) {
	d.start, d.end = append(d.start, start), append(d.end, end)
}

func (o *overhead) report(b *testing.B) {
	b.Helper()
	report(b, "start", o.bare.start, o.runner.start)
	report(b, "end", o.bare.end, o.runner.end)
}

// wasMeasured fails the test unless each time was measured in so many pairs.
func (o *overhead) wasMeasured(t *testing.T, pairs int) {
	t.Helper()
	for what, times := range map[string][]time.Duration{
		"start of bare QEMU": o.bare.start, "end of bare QEMU": o.bare.end, "start of the runner": o.runner.start, "end of the runner": o.runner.end,
	} {
		t.Logf("%s: %v", what, times)
		if len(times) != pairs || slices.Min(times) <= 0 {
			t.Errorf("the %s took %v, want %d positive times", what, times, pairs)
		}
	}
}

func report(b *testing.B, what string, bare, runner []time.Duration) {
	b.Helper()
	b.ReportMetric(milliseconds(median(bare)), "bare-"+what+"-ms")
	b.ReportMetric(milliseconds(median(differences(bare, runner))), what+"-overhead-ms")
	b.Logf("%s: bare %v, runner %v", what, bare, runner)
}

func differences(bare, runner []time.Duration) []time.Duration {
	var d []time.Duration
	for i := range bare {
		d = append(d, runner[i]-bare[i])
	}
	return d
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// bareArguments returns the arguments of a QEMU like that of the runner.
func bareArguments(b testing.TB, options vm.Options) []string {
	b.Helper()
	v := vm.Start(b, options)
	v.Await(b, 0, "tiny: ready", tinyBoots)
	pid := v.Status(b).PID
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		b.Fatal(err)
	}
	v.Terminate(b)
	v.Wait(b, goesDown)
	// The runner removes the boot data once QEMU has read it.
	if err := os.WriteFile(filepath.Join(options.Directory, "run", "ignition.json"), []byte("{}"), 0o600); err != nil {
		b.Fatal(err)
	}
	arguments := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
	return withoutRunner(arguments, filepath.Join(options.Directory, "run"))
}

// inherited matches what QEMU inherits from a runner, and fileSet one of the files, whose path is beside it for people.
var (
	inherited = regexp.MustCompile(`\bfd=\d+`)
	fileSet   = regexp.MustCompile(`^fd=\d+,set=(\d+),opaque=(.*)$`)
)

// withoutRunner returns arguments with which QEMU opens files, sockets and the tap itself, and waits for nothing.
func withoutRunner(arguments []string, run string) (own []string) {
	opens := strings.NewReplacer()
	for _, a := range arguments {
		file := fileSet.FindStringSubmatch(a)
		switch {
		case file != nil:
			opens = strings.NewReplacer("/dev/fdset/"+file[1]+",", file[2]+",")
		case a == "-S", a == "-add-fd":
		case strings.HasPrefix(a, "socket,id=monitor,"):
			own = append(own, inherited.ReplaceAllLiteralString(a, "path="+filepath.Join(run, "qmp.sock")))
		case strings.HasPrefix(a, "socket,id=agent,"):
			own = append(own, inherited.ReplaceAllLiteralString(a, "path="+filepath.Join(run, "agent.sock")))
		case strings.HasPrefix(a, "tap,"):
			own = append(own, inherited.ReplaceAllLiteralString(a, "ifname="+guestnet.TapName+",script=no,downscript=no"))
		default:
			own = append(own, opens.Replace(a))
		}
	}
	return own
}

func runBare(b testing.TB, pod *podnet.Pod, base string, arguments []string) (start, end time.Duration) {
	b.Helper()
	ignition := filepath.Join(base, "run", "ignition.json")
	if err := os.WriteFile(ignition, []byte("{}"), 0o600); err != nil {
		b.Fatal(err)
	}
	pod.Run(b, "ip", "tuntap", "add", "dev", guestnet.TapName, "mode", "tap")
	defer pod.Run(b, "ip", "tuntap", "del", "dev", guestnet.TapName, "mode", "tap")
	return measureBare(b, pod.Command("qemu-system-x86_64", arguments...), filepath.Join(base, "run", "qmp.sock"), "tiny: ready")
}

// measureBare runs a QEMU without a runner until its guest has said that it is ready, presses the power button, and
// returns how long it took until the guest's first byte, and from the button to the end.
func measureBare(b testing.TB, command *exec.Cmd, socket, ready string) (start, end time.Duration) {
	b.Helper()
	input, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	defer input.Close()
	output, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	// The command is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := time.Now()
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = command.Process.Kill() }()
	start = readUntil(b, output, ready, begin)
	go func() { _, _ = io.Copy(io.Discard, output) }()

	monitor, err := qmp.Dial(b.Context(), socket)
	if err != nil {
		b.Fatal(err)
	}
	defer monitor.Close()
	begin = time.Now()
	if err := monitor.Powerdown(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := command.Process.Wait(); err != nil {
		b.Fatal(err)
	}
	return start, time.Since(begin)
}

// readUntil reads until a text, and returns the time of the first byte.
func readUntil(b testing.TB, output io.Reader, ready string, begin time.Time) (first time.Duration) {
	b.Helper()
	var text bytes.Buffer
	buffer := make([]byte, 4096)
	for !bytes.Contains(text.Bytes(), []byte(ready)) {
		n, err := output.Read(buffer)
		if err != nil {
			b.Fatalf("%v after %s", err, text.String())
		}
		if text.Len() == 0 {
			first = time.Since(begin)
		}
		text.Write(buffer[:n])
	}
	return first
}

func runRunner(b testing.TB, options vm.Options) (start, end time.Duration) {
	b.Helper()
	v := vm.Start(b, options)
	ctx, cancel := context.WithTimeout(b.Context(), tinyBoots)
	defer cancel()
	start = v.AwaitFirst(ctx, b).Sub(v.Started)
	v.Await(b, 0, "tiny: ready", tinyBoots)
	begin := time.Now()
	v.Terminate(b)
	v.Wait(b, goesDown)
	return start, time.Since(begin)
}
