package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Declared is a virtual machine that is declared as one.
type Declared struct {
	// Machine and Live are what the operator says of it.
	Machine vmconfig.Machine
	Live    vmconfig.Live
	// Devices is the directory with its disks, and CloudInit the one with the files for cloud-init.
	Devices, CloudInit string
}

// BootTiny lets QEMU boot the tiny guest, which has no boot loader. QEMU has to be the runner's own user (--qemu-user=0)
// to see its files.
func (d *Declared) BootTiny(t testing.TB, arguments ...string) {
	t.Helper()
	tiny := Tiny(t)
	arguments = append([]string{"console=ttyS0", "panic=-1", "no_timer_check"}, append(tiny.Arguments, arguments...)...)
	d.Machine.ExtraArgs = append(d.Machine.ExtraArgs, "-kernel", tiny.Kernel, "-initrd", tiny.Initrd, "-append", strings.Join(arguments, " "))
}

// arguments returns the command line of the runner.
func (d Declared) arguments(t testing.TB, directory string) []string {
	t.Helper()
	machine, err := d.Machine.Encode()
	if err != nil {
		t.Fatal(err)
	}
	config, err := d.Live.Encode()
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(directory, name) }
	if err := os.WriteFile(in("live.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"runner", "vm", "--machine=" + machine, "--config=" + in("live.json"), "--devices=" + d.Devices, "--cloud-init=" + d.CloudInit,
		"--data=" + in("data"), "--image-repository=" + in("images"), "--state=" + in("state"), "--run=" + in("run"),
		"--termination-log=" + terminationLog(directory), "--allow-emulation",
	}
}
