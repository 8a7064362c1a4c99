package vmrunner

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

func TestMachineThatBreaksARuleIsRefused(t *testing.T) {
	first := func(s *Settings) *vmconfig.Network { return &s.Machine.Networks[0] }
	for name, test := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"no configuration":                {func(s *Settings) { s.Config = "" }, "are all needed"},
		"cloud-init without a directory":  {func(s *Settings) { s.Machine.CloudInit, s.CloudInit = true, "" }, "files for cloud-init is missing"},
		"a net that is none":              {func(s *Settings) { first(s).Net = "10.9.0.0" }, `the net "10.9.0.0" is no subnet such as 10.9.0.0/24`},
		"an option in a device":           {func(s *Settings) { first(s).Device = "virtio-net,romfile=/etc/shadow" }, "is none of virtio-net"},
		"a multicast address":             {func(s *Settings) { first(s).MAC = "53:54:00:12:34:56" }, "unicast"},
		"a key in the clock":              {func(s *Settings) { s.Machine.RTCBase = "utc\nx: y" }, "Clock.Base"},
		"an option in the CPU's model":    {func(s *Settings) { s.Machine.CPUModel = "host -device x" }, "CPU.Model"},
		"a topology of another number":    {func(s *Settings) { s.Machine.Topology.Cores = 3 }, "are not 4 CPUs"},
		"a disk that is a path":           {func(s *Settings) { s.Machine.Drives[1].Name = "../etc/shadow" }, "the name of a disk"},
		"a disk with a name in the guest": {func(s *Settings) { s.Machine.Drives[1].Name = cloudInitSerial }, "the name of a disk"},
		"a negative boot index":           {func(s *Settings) { s.Machine.Drives[0].BootIndex = new(-1) }, "places count from 0"},
		"a boot index twice": {
			func(s *Settings) { s.Machine.Drives[0].BootIndex, s.Machine.Drives[1].BootIndex = new(0), new(0) }, "is the place of",
		},
		"seven CDs": {func(s *Settings) {
			for range 6 {
				s.Machine.Drives = append(s.Machine.Drives, vmconfig.Drive{Type: vmconfig.DriveCD})
			}
		}, "a machine has 6 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			s := example(t)
			test.change(&s)
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestMachinesOfEveryFirmwareAreValid(t *testing.T) {
	s := example(t)
	for _, firmware := range []string{vmconfig.FirmwareBIOS, vmconfig.FirmwareUEFI, vmconfig.FirmwareUEFI4M, vmconfig.FirmwareSecure, vmconfig.FirmwareSecure4M} {
		if s.Machine.Firmware = firmware; s.Validate() != nil {
			t.Errorf("%s: %v", firmware, s.Validate())
		}
	}
}
