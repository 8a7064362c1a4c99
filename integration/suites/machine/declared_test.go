package machine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestDeclaredMachineIsParkedAfterItsGuestShutDown: its guest sees what was declared, and once it has shut itself down, the
// next runner in the pod does not start the machine at once.
func TestDeclaredMachineIsParkedAfterItsGuestShutDown(t *testing.T) {
	t.Parallel()
	options := vm.Options{Directory: vm.Directory(t), Declared: declared(t), Args: []string{"--parked-for=5s", "--qemu-user=0"}}
	v := vm.Start(t, options)
	for _, line := range []string{"system-disk size=2097152", "a-disk-wi-d09ad85cce size=1048576", "CIDATA size=4194304"} {
		v.Await(t, 0, "tiny: disk="+line, tinyBoots)
	}
	v.Await(t, 0, "tiny: ready", tinyBoots)
	v.Await(t, 0, "tiny: cpus=2 ", goesDown)
	if status := v.Status(t); status.State != keeper.StateRunning || !status.Ready {
		t.Errorf("the machine is %+v", status)
	}
	v.Type(t, "poweroff")
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonGuestShutDown, "the guest shut itself down", "tiny: ready")

	next := vm.Start(t, options)
	next.AwaitLog(t, "msg=Parked", runnerEnds)
	if status := next.Status(t); status.State != keeper.StateParked || status.Ready || !status.Live || status.PID != 0 {
		t.Errorf("the parked machine is %+v", status)
	}
	next.AwaitLog(t, "msg=Running", tinyBoots)
	if took := time.Since(next.Started); took < 5*time.Second {
		t.Errorf("it was parked for less than %s", took)
	}
}

// TestDeclaredMachineKeepsItsFirmwareVariables: its QEMU, which is not root, runs the firmware of the runner's image, and
// writes the variables of this machine.
func TestDeclaredMachineKeepsItsFirmwareVariables(t *testing.T) {
	t.Parallel()
	if _, err := qemu.FindFirmware(os.DirFS("/"), vmconfig.FirmwareUEFI); err != nil {
		t.Skip("apt-get install ovmf:", err)
	}
	machine := declared(t)
	machine.Machine.Firmware, machine.Machine.ExtraArgs, machine.Machine.Networks = vmconfig.FirmwareUEFI, nil, nil
	v := vm.Start(t, vm.Options{Declared: machine})
	v.Await(t, 0, "UEFI Interactive Shell", tinyBoots)
	vars, err := filepath.Glob(filepath.Join(v.Directory, "data", "OVMF_CODE*-vars.fd"))
	if err != nil || len(vars) != 1 {
		t.Fatalf("the machine's own variables are %v, %v", vars, err)
	}
	if content, err := os.ReadFile(vars[0]); err != nil || !strings.Contains(string(content), "B\x00o\x00o\x00t\x00O\x00r\x00d\x00e\x00r\x00") {
		t.Errorf("the firmware has stored no boot order: %v", err)
	}
	v.Kill()
}

// declared returns a machine with two disks, an empty CD drive, a network and data for cloud-init.
func declared(t *testing.T) *vm.Declared {
	t.Helper()
	const long = "a-disk-with-a-long-name"
	d := &vm.Declared{
		Machine: vmconfig.Machine{
			Name: "declared", UUID: "5f0c8f3e-8e3d-4b0e-9d50-0242ac120002", Acceleration: "tcg", Firmware: vmconfig.FirmwareBIOS,
			MaximumCPUs: 4, MaximumRAM: 256 << 20, CloudInit: true,
			Networks: []vmconfig.Network{{Type: vmconfig.NetworkUser}},
			Drives: []vmconfig.Drive{
				{Type: vmconfig.DriveCD}, {Type: vmconfig.DriveRaw, Name: "system-disk", BootIndex: new(0)}, {Type: vmconfig.DriveRaw, Name: long},
			},
		},
		Live:    vmconfig.Live{CurrentCPUs: 2, CurrentRAM: 192 << 20, PowerdownTimeout: 60, Media: []string{""}},
		Devices: t.TempDir(), CloudInit: t.TempDir(),
	}
	d.BootTiny(t, "tiny.disk=system-disk", "tiny.disk="+disk.Serial(long), "tiny.disk=CIDATA")
	err := errors.Join(
		os.WriteFile(filepath.Join(d.Devices, "system-disk"), []byte(strings.Repeat("x", 2<<20)), 0o600),
		os.WriteFile(filepath.Join(d.Devices, long), []byte(strings.Repeat("x", 1<<20)), 0o600),
		os.WriteFile(filepath.Join(d.CloudInit, "meta-data"), []byte("instance-id: v1\n"), 0o600),
		os.WriteFile(filepath.Join(d.CloudInit, "user-data"), []byte("#cloud-config\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
