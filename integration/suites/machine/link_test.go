package machine_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestDeclaredMachineChangesWhileItRuns: what an operator orders over the link becomes true of the machine and its guest,
// and what does not is reported.
func TestDeclaredMachineChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	directory, machine := vm.Directory(t), declared(t)
	images := filepath.Join(directory, "images")
	if err := os.MkdirAll(images, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(images, "disc.iso"), []byte(strings.Repeat("x", 64<<10)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A machine starts without a CD that is missing, and has the other one from the start.
	machine.Machine.Drives = append(machine.Machine.Drives, vmconfig.Drive{Type: vmconfig.DriveCD})
	machine.Live.Media = []string{"missing.iso", "disc.iso"}
	v := vm.Start(t, vm.Options{Directory: directory, Declared: machine, Args: []string{"--qemu-user=0"}})
	v.AwaitLog(t, "The machine starts without a CD", tinyBoots)
	v.Await(t, 0, "tiny: ready", tinyBoots)
	hasMedia(t, v, 1)
	link := connect(t, v)
	link.await(t, "unchanged since its start", func(r vmconfig.Report) bool {
		return r.State == "Running" && r.CPUs == 2 && r.Accelerator == "tcg" && r.RAM == machine.Live.CurrentRAM && !r.Busy &&
			len(r.Problems) == 1 && strings.Contains(r.Problems[vmconfig.PartMedia], "missing.iso")
	})

	before := len(v.Console())
	live := machine.Live
	live.CurrentCPUs, live.CurrentRAM, live.Media = 4, 128<<20, []string{"disc.iso", "disc.iso"}
	link.order(t, live)
	link.await(t, "changed", func(r vmconfig.Report) bool {
		return r.CPUs == 4 && r.RAM == 128<<20 && !r.Busy && len(r.Problems) == 0 && r.Wanted.Same(live)
	})
	v.Await(t, before, "tiny: cpus=4 ", goesDown)
	hasMedia(t, v, 2)

	// Whatever this QEMU and the files allow, the rest is done.
	live.CurrentCPUs, live.CurrentRAM, live.Media = 5, 192<<20, []string{"missing.iso", "disc.iso"}
	link.order(t, live)
	link.await(t, "changed as far as possible", func(r vmconfig.Report) bool {
		return r.RAM == 192<<20 && !r.Busy && strings.Contains(r.Problems[vmconfig.PartCPUs], "has room for 4") && strings.Contains(r.Problems[vmconfig.PartMedia], "missing.iso")
	})
	live.CurrentCPUs, live.Media = 4, []string{"", ""}
	link.order(t, live)
	link.await(t, "without problems", func(r vmconfig.Report) bool { return !r.Busy && r.CPUs == 4 && len(r.Problems) == 0 })
	hasMedia(t, v, 0)

	again := connect(t, v)
	again.await(t, "known to another operator", func(r vmconfig.Report) bool { return r.Wanted.Same(live) && r.CPUs == 4 })
	v.Type(t, "poweroff")
	v.Wait(t, goesDown)
	for report := range again.reports {
		t.Logf("the link continues with %+v", report)
	}
}

// hasMedia checks how many CD drives have the image of the test.
func hasMedia(t *testing.T, v *vm.VM, want int) {
	t.Helper()
	drives, err := v.Client().QMP(t.Context(), []byte(`{"execute":"query-block"}`))
	if got := strings.Count(strings.ReplaceAll(string(drives), " ", ""), `"virtual-size":65536`); err != nil || got != want {
		t.Errorf("%d drives have the image, want %d: %v %s", got, want, err, drives)
	}
}

// operatorsLink is an operator's end of a link.
type operatorsLink struct {
	connection io.ReadWriteCloser
	reports    chan vmconfig.Report
}

func connect(t *testing.T, v *vm.VM) *operatorsLink {
	t.Helper()
	connection, err := v.Client().Connect(t.Context(), vmconfig.LinkPath, vmconfig.LinkProtocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	link := &operatorsLink{connection: connection, reports: make(chan vmconfig.Report)}
	go func() {
		defer close(link.reports)
		lines := bufio.NewScanner(connection)
		for lines.Scan() {
			report, err := vmconfig.DecodeReport(lines.Bytes())
			if err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			link.reports <- report
		}
	}()
	return link
}

func (l *operatorsLink) order(t *testing.T, live vmconfig.Live) {
	t.Helper()
	line, err := vmconfig.Order{Live: live}.Encode()
	if err == nil {
		_, err = l.connection.Write(line)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// await reads reports until one is right.
func (l *operatorsLink) await(t *testing.T, what string, right func(vmconfig.Report) bool) {
	t.Helper()
	last := "none"
	for deadline := time.After(goesDown); ; {
		select {
		case report, ok := <-l.reports:
			if !ok {
				t.Fatalf("the link was cut before the machine was %s; the last report is %s", what, last)
			}
			if right(report) {
				return
			}
			last = fmt.Sprintf("%+v", report)
		case <-deadline:
			t.Fatalf("the machine was not %s; the last report is %s", what, last)
		}
	}
}
