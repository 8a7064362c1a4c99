package machine_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
)

// TestNothingGrowsOver100Reboots runs a runner in this process, where goroutines can be counted. It is not parallel, so
// it does not count goroutines of other tests.
func TestNothingGrowsOver100Reboots(t *testing.T) {
	settings, bootData := inProcess(t), vm.Pack(t, `{"ignition":{"version":"3.3.0"}}`)
	if err := os.WriteFile(settings.BootData[0], []byte(bootData), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := noderunner.New(settings, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
	ended := make(chan keeper.End, 1)
	go func() { ended <- r.Run(ctx) }()
	awaitResets(t, r, 0)
	client := keeper.Client{Socket: filepath.Join(settings.Run, keeper.SocketName)}

	var goroutines, descriptors int
	for i := range 100 {
		if _, err := client.QMP(ctx, []byte(`{"execute":"system_reset"}`)); err != nil {
			t.Fatal(err)
		}
		awaitResets(t, r, i+1)
		if i == 9 {
			goroutines, descriptors = settled(runtime.NumGoroutine), settled(openFiles)
		}
	}
	if now := settled(runtime.NumGoroutine); now > goroutines {
		t.Errorf("there were %d goroutines after 10 reboots, and %d after 100", goroutines, now)
	}
	if now := settled(openFiles); now > descriptors {
		t.Errorf("there were %d open files after 10 reboots, and %d after 100", descriptors, now)
	}
	stop()
	end := <-ended
	if end.Reason != keeper.ReasonGuestKilled && end.Reason != keeper.ReasonPoweredDown {
		t.Errorf("it ended with %+v", end)
	}
}

func inProcess(t *testing.T) noderunner.Settings {
	t.Helper()
	tiny, base := vm.Tiny(t), vm.Directory(t)
	timeouts := keeper.DefaultTimeouts
	timeouts.Powerdown = time.Second
	return noderunner.Settings{
		Settings: keeper.Settings{Name: "vm", Run: filepath.Join(base, "run"), QEMU: "qemu-system-x86_64", Timeouts: timeouts},
		CPUs:     1, Memory: 128, BootData: []string{filepath.Join(base, "user_data")},
		Source: osimage.Source{
			Image: osimage.Image{
				Name: "tiny", Kernel: osimage.File{URL: "file://" + tiny.Kernel}, Initrd: osimage.File{URL: "file://" + tiny.Initrd},
				IgnitionKey: "opt/com.coreos/config",
			},
			ImageDirectories: []string{"/"}, // the image is a link into the cache of the tools
			Images:           filepath.Join(base, "images"),
		},
		State: filepath.Join(base, "state"), Network: noderunner.NetworkUser, Acceleration: "tcg", AllowEmulation: true,
	}
}

func awaitResets(t *testing.T, r *noderunner.Runner, n int) {
	t.Helper()
	poll.Eventually(t, time.Minute, 10*time.Millisecond, func() error {
		if status := r.Status(t.Context()); status.State != keeper.StateRunning || status.Resets < n {
			return fmt.Errorf("after %d resets the status is %+v", n, status)
		}
		return nil
	})
}

// settled returns the smallest count over some time because closed connections take a moment to disappear.
func settled(count func() int) int {
	least := count()
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		least = min(least, count())
	}
	return least
}

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(entries)
}

func TestRunnerNeedsLessThan20MiB(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{BootData: []string{largeBootData(t, 1), largeBootData(t, 2)}})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	for range 20 {
		v.Status(t)
	}
	resident := memoryOf(t, v.PID(), "VmRSS")
	t.Logf("the resident memory of the runner is %.1f MiB", float64(resident)/(1<<20))
	if resident > 20<<20 {
		t.Errorf("the runner's resident memory is %.1f MiB", float64(resident)/(1<<20))
	}
}

// largeBootData returns boot data of the largest size for a ConfigMap.
func largeBootData(t *testing.T, seed int64) string {
	t.Helper()
	noise := make([]byte, 500<<10)
	rand.New(rand.NewSource(seed)).Read(noise)
	return vm.Pack(t, fmt.Sprintf(`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/noise%d","contents":{"source":"data:;base64,%s"}}]}}`,
		seed, base64.StdEncoding.EncodeToString(noise)))
}

// memoryOf returns a kind of memory of a process in bytes: VmRSS, which is resident, or RssAnon, its private part
// (proc_pid_status(5)).
func memoryOf(t testing.TB, pid int, kind string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), kind+":")
	line, _, _ := strings.Cut(rest, "kB")
	kilobytes, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
