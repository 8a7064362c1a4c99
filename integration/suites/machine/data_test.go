package machine_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// TestWhatWasAcknowledgedIsOnTheVolume kills the runner or QEMU while the guest writes lines and reports each one that
// has been synced. Every reported line has to be there, in order, and the next machine continues with them.
func TestWhatWasAcknowledgedIsOnTheVolume(t *testing.T) {
	kills := map[string]func(*testing.T, *vm.VM){
		"kill -9 of the runner": func(_ *testing.T, v *vm.VM) { v.Kill() },
		"kill -9 of QEMU":       func(t *testing.T, v *vm.VM) { signalQEMU(t, v, syscall.SIGKILL) },
	}
	volumes := map[string]string{"a shared directory": "/mnt/etcdshare/log", "a disk": "/mnt/rootfs/log"}
	for how, kill := range kills {
		for what, path := range volumes {
			t.Run(how+" on "+what, func(t *testing.T) {
				t.Parallel()
				pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
				options := vm.Options{
					Pod: pod, Directory: vm.Directory(t), Args: []string{"--etcd=" + vm.Directory(t), "--disk=rootfs:64M"},
					Image: vm.Tiny(t).With("tiny.share=etcdshare", "tiny.disk=rootfs", "tiny.write="+path),
				}
				last := 0
				for range 2 {
					v := vm.Start(t, options)
					first := atoi(t, v.Await(t, 0, "tiny: writing "+path+" after ", tinyBoots))
					if first < last {
						t.Fatalf("line %d was acknowledged, and the volume ends with line %d", last, first)
					}
					v.Await(t, 0, fmt.Sprintf("tiny: wrote %d\r", first+20), tinyBoots)
					kill(t, v)
					v.Wait(t, runnerEnds)
					last = lastWritten(t, v.Console())
					if what == "a shared directory" {
						expectLines(t, filepath.Join(strings.TrimPrefix(options.Args[0], "--etcd="), "log"), last)
					}
				}
				v := vm.Start(t, options)
				if first := atoi(t, v.Await(t, 0, "tiny: writing "+path+" after ", tinyBoots)); first < last {
					t.Errorf("line %d was acknowledged, and the volume ends with line %d", last, first)
				}
				v.Await(t, 0, "tiny: ready", tinyBoots)
				v.Terminate(t)
				expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "")
			})
		}
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lastWritten returns the number of the last line that the guest reported.
func lastWritten(t *testing.T, console string) int {
	t.Helper()
	const mark = "tiny: wrote "
	i := strings.LastIndex(console, mark)
	for i >= 0 && !strings.Contains(console[i:], "\n") {
		i = strings.LastIndex(console[:i], mark)
	}
	if i < 0 {
		t.Fatal("the guest wrote nothing")
	}
	number, _, _ := strings.Cut(console[i+len(mark):], "\r")
	return atoi(t, number)
}

// expectLines checks that a file holds lines 1, 2, 3 … up to at least n. A line after that may be incomplete.
func expectLines(t *testing.T, path string, n int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	count := 0
	for lines.Scan() && count < n {
		count++
		if lines.Text() != strconv.Itoa(count) {
			t.Fatalf("line %d of %s is %q", count, path, lines.Text())
		}
	}
	if count < n {
		t.Errorf("%s has %d lines, and %d were acknowledged", path, count, n)
	}
}
