package runner

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmrunner"
)

// vmFlags are those of runner vm after a command line was parsed.
func vmFlags(t *testing.T, arguments ...string) *pflag.FlagSet {
	t.Helper()
	c, rest, err := New().Find(append([]string{"vm"}, arguments...))
	if err != nil || c.Name() != "vm" {
		t.Fatal(c.Name(), err)
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	return c.Flags()
}

func lookUp(environment map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, ok := environment[name]; return value, ok }
}

func TestLoadVM(t *testing.T) {
	m := vmconfig.Machine{
		Name: "test-vm", Firmware: vmconfig.FirmwareBIOS, MaximumCPUs: 2, MaximumRAM: 1 << 30, Drives: []vmconfig.Drive{{Type: vmconfig.DriveRaw, Name: "system-disk"}},
	}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// HOSTNAME and POWERDOWN_TIMEOUT are variables of node pods.
	environment := map[string]string{
		"MACHINE": text, "ALLOW_EMULATION": "true", "CANARY_KERNEL": "/usr/share/kvm-operator/vmlinuz", "HOSTNAME": "test-vm-0", "POWERDOWN_TIMEOUT": "1s",
	}
	got, err := loadVM(vmFlags(t, "--run=/run/vm", "--termination-log=", "--lock-timeout=1m", "--dns-servers=10.0.0.1", "--search-domains=a.example.,b.example"), lookUp(environment))
	if err != nil {
		t.Fatal(err)
	}
	timeouts := keeper.DefaultTimeouts
	timeouts.Lock, timeouts.Boot = timeouts.Start, 0
	m.Version = vmconfig.Version
	want := vmrunner.Settings{
		Settings: keeper.Settings{Name: "test-vm", Run: "/run/vm", QEMU: "qemu-system-x86_64", QEMUUser: keeper.QEMUUser, Timeouts: timeouts},
		Version:  project.Version(),
		Machine:  m, Config: vmconfig.LiveFile, CloudInit: vmconfig.CloudInitDirectory, Display: vmconfig.DisplayDirectory, Data: vmconfig.DataDirectory, Images: vmconfig.ImageRepository,
		Devices: filepath.Dir(m.Drives[0].Device()), State: vmconfig.StateDirectory, Kernel: "/usr/share/kvm-operator/vmlinuz", AllowEmulation: true,
		ParkedFor: vmrunner.ParkedFor, DNSServers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, SearchDomains: []string{"a.example", "b.example"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("settings differ (-want +got):\n%s", diff)
	}
}

func TestVMThatCannotBeRunIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		want        string
	}{
		"no machine":                 {nil, "set --machine (MACHINE)"},
		"no JSON":                    {map[string]string{"MACHINE": "{"}, "not a machine in JSON"},
		"of a later operator":        {map[string]string{"MACHINE": `{"version":2}`}, "same major version"},
		"a machine without anything": {map[string]string{"MACHINE": `{"version":1}`}, "the name of the machine is missing"},
		"a disk that is a path": {
			map[string]string{"MACHINE": `{"version":1,"name":"a","firmware":"bios","maximumCpus":1,"maximumRam":1048576,"drives":[{"type":"raw","name":"../etc"}]}`},
			`the name of a disk is "../etc"`,
		},
		"what is neither true nor false": {map[string]string{"MACHINE": `{"version":1}`, "ALLOW_EMULATION": "x"}, "variable ALLOW_EMULATION"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadVM(vmFlags(t), lookUp(test.environment)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
}
