package machine_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/bootsector"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// diskSize is that of the smallest guest's disk, and ciSize that of its data for cloud-init, in bytes.
const (
	diskSize = 1 << 20
	ciSize   = 4 << 20
)

// BenchmarkDeclaredOverhead compares the runner of a VirtualMachine with bare QEMU with the same devices: BIOS, a user
// network, a guest agent's port and a disk for cloud-init. The start is measured until the guest's first byte, and the
// shutdown until the process has ended: for the runner from SIGTERM, for bare QEMU from the power button.
func BenchmarkDeclaredOverhead(b *testing.B) {
	for b.Loop() {
		compareDeclared(b, pairs).report(b)
	}
}

// TestDeclaredOverheadInSmall keeps that benchmark working: it has one pair and compares nothing.
func TestDeclaredOverheadInSmall(t *testing.T) {
	t.Parallel()
	compareDeclared(t, 1).wasMeasured(t, 1)
}

func compareDeclared(b testing.TB, pairs int) *overhead {
	b.Helper()
	directory := vm.Directory(b)
	arguments := bareSmallest(b, directory)
	o := &overhead{}
	for range pairs {
		o.bare.add(runBareSmallest(b, directory, arguments))
		o.runner.add(runDeclared(b))
	}
	return o
}

func runDeclared(b testing.TB) (start, end time.Duration) {
	b.Helper()
	v := vm.Start(b, vm.Options{Declared: smallest(b), Args: []string{"--qemu-user=0"}})
	ctx, cancel := context.WithTimeout(b.Context(), tinyBoots)
	defer cancel()
	start = v.AwaitFirst(ctx, b).Sub(v.Started)
	v.Await(b, 0, "boot", goesDown)
	begin := time.Now()
	v.Terminate(b)
	v.Wait(b, goesDown)
	return start, time.Since(begin)
}

// smallest returns a machine with the smallest guest.
func smallest(t testing.TB) *vm.Declared {
	t.Helper()
	d := &vm.Declared{
		Machine: vmconfig.Machine{
			Name: "smallest", UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Acceleration: "tcg", Firmware: vmconfig.FirmwareBIOS, MaximumCPUs: 1,
			MaximumRAM: 64 << 20, CloudInit: true, Networks: []vmconfig.Network{{Type: vmconfig.NetworkUser}},
			Drives: []vmconfig.Drive{{Type: vmconfig.DriveRaw, Name: "system-disk", BootIndex: new(0)}},
		},
		Live:    vmconfig.Live{CurrentCPUs: 1, CurrentRAM: 64 << 20, PowerdownTimeout: 60},
		Devices: t.TempDir(), CloudInit: t.TempDir(),
	}
	if err := bootsector.Write(filepath.Join(d.Devices, "system-disk"), diskSize); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"meta-data": "instance-id: v1\n", "user-data": "#cloud-config\n"} {
		if err := os.WriteFile(filepath.Join(d.CloudInit, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// bareSmallest returns the command line of a QEMU with the devices of that machine.
func bareSmallest(b testing.TB, directory string) []string {
	b.Helper()
	in := func(name string) string { return filepath.Join(directory, name) }
	if err := os.WriteFile(in("cloud-init"), make([]byte, ciSize), 0o600); err != nil {
		b.Fatal(err)
	}
	arguments, err := qemu.Machine{
		Name: "bare", UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Accelerator: qemu.TCG, CPU: qemu.CPU{Count: 1, Max: 1}, Memory: 64,
		Networks: []qemu.Network{{MAC: "52:54:00:12:34:56", User: &qemu.UserNetwork{}}}, Monitor: in("qmp.sock"), Agent: in("agent.sock"),
		Disks: []qemu.Disk{
			{Serial: "system-disk", Path: in("system-disk"), Format: qemu.Raw, BootIndex: 1},
			{Serial: "CIDATA", Path: in("cloud-init"), Format: qemu.Raw, ReadOnly: true},
		},
	}.Args()
	if err != nil {
		b.Fatal(err)
	}
	return arguments
}

func runBareSmallest(b testing.TB, directory string, arguments []string) (start, end time.Duration) {
	b.Helper()
	if err := bootsector.Write(filepath.Join(directory, "system-disk"), diskSize); err != nil {
		b.Fatal(err)
	}
	return measureBare(b, exec.Command("qemu-system-x86_64", arguments...), filepath.Join(directory, "qmp.sock"), "boot")
}

// maxResident is how much memory the runner of a VirtualMachine may have while an operator is linked with it, and
// maxLink how much of the process that links them is its own.
const (
	maxResident = 24 << 20
	maxLink     = 5 << 20
)

// TestRunnerOfAVirtualMachineNeedsLittleMemory, also while an operator is linked with it.
func TestRunnerOfAVirtualMachineNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	v := vm.Start(t, vm.Options{Declared: smallest(t), Args: []string{"--qemu-user=0"}})
	v.Await(t, 0, "boot", tinyBoots)
	ctx, cancel := context.WithTimeout(t.Context(), tinyBoots)
	defer cancel()
	link := exec.CommandContext(ctx, vm.Runner(t), "runner", "link", "--run="+filepath.Join(v.Directory, "run"))
	input, err := link.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := link.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 4096)); err != nil {
		t.Fatalf("the link reports nothing: %v", err)
	}
	for range 20 {
		v.Status(t)
	}
	resident, own := memoryOf(t, v.PID(), "VmRSS"), memoryOf(t, link.Process.Pid, "RssAnon")
	t.Logf("the runner has %.1f MiB, and the link %.1f MiB of its own", float64(resident)/(1<<20), float64(own)/(1<<20))
	if resident > maxResident || own > maxLink {
		t.Error("that is too much")
	}
	_ = input.Close()
	_ = link.Wait() // it ends as its input does
}
