package vmrunner

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// hostileMachines is how many machines are tried, and hostileTexts is what they have in their fields.
const hostileMachines = 3000

var hostileTexts = []string{
	"x,romfile=/etc/shadow", "x,filename=/etc/shadow", "x,file=y", "x,snapshot", "x,,y", "x\n-drive file=/etc/shadow", "x -monitor stdio", "-S", "../../etc/shadow", "/etc/shadow", "json:{\"driver\":\"file\"}",
	"nbd://192.0.2.1", "%s%n", "$(reboot)", "`reboot`", "\x00", "é☃", "", " ", "=", ",", "x=y", "host,+rtm", "Skylake-Server", "utc", "2026-01-31", "virtio-net",
	"52:54:00:12:34:56", "br0", "10.9.0.0/24", "pc-q35-10.0", strings.Repeat("a", 300),
}

// TestHostileMachineAddsNoOption: whatever a machine has in its fields, the runner refuses it, or QEMU gets options and
// keys that a machine without hostile texts has, none of them twice, and its name as it is.
func TestHostileMachineAddsNoOption(t *testing.T) {
	known, tame := map[string]bool{}, tameSettings(t)
	for _, s := range tame {
		for _, option := range parsed(t, argumentsOf(t, s)) {
			for key := range option.parts {
				known[option.name+" "+key] = true
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range hostileMachines {
		s := tame[random.IntN(len(tame))]
		s.Machine = copied(t, s.Machine)
		for range 1 + random.IntN(3) {
			corrupt(reflect.ValueOf(&s.Machine).Elem(), random)
		}
		s.Name, s.Machine.ExtraArgs = s.Machine.Name, nil // these may be anything, and are off by default
		if s.Validate() != nil {
			continue
		}
		accepted++
		for _, option := range parsed(t, argumentsOf(t, s)) {
			for key, value := range option.parts {
				if option.name != "-cpu" && !known[option.name+" "+key] || option.twice { // the features of a CPU are keys
					t.Errorf("%+v\nadds %s %s=%s", s.Machine, option.name, key, value)
				}
			}
			if option.name == "-name" && option.parts["guest"] != s.Name {
				t.Errorf("the machine %q is called %q", s.Name, option.parts["guest"])
			}
		}
	}
	t.Logf("%d of %d machines are accepted", accepted, hostileMachines)
	if accepted < hostileMachines/20 {
		t.Error("too few machines are accepted for this to prove something")
	}
}

// tameSettings returns machines that together have all parts.
func tameSettings(t *testing.T) (all []Settings) {
	t.Helper()
	for i, firmware := range []string{vmconfig.FirmwareBIOS, vmconfig.FirmwareUEFI, vmconfig.FirmwareSecure4M} {
		s := example(t)
		m := &s.Machine
		m.Firmware, m.TPM, m.BootMenu, m.CloudInit, m.DiskLinks = firmware, i > 0, i > 1, true, true
		m.CPUModel, m.RTCBase, m.RTCClock, m.Type = "host,+rtm", "2026-01-31", "rt", "pc-q35-10.0"
		m.Topology = vmconfig.Topology{Sockets: 1, Cores: 2, Threads: 2}
		m.Networks = []vmconfig.Network{
			{Type: vmconfig.NetworkUser, Device: "e1000", Net: "10.9.0.0/24", Isolated: true}, {Type: vmconfig.NetworkTap, Bridge: "br0", MAC: "52:54:00:12:34:56"},
		}
		m.Drives = append(m.Drives, vmconfig.Drive{Type: vmconfig.DriveRaw, Name: "data-disk", BootIndex: new(0)}, vmconfig.Drive{Type: vmconfig.DriveCD, BootIndex: new(1)})
		m.Display = &vmconfig.Display{Outputs: 2, SPICE: &vmconfig.SPICE{Port: 5900, USBRedirects: 2, StreamingVideo: "all", Password: i == 0}}
		s.Display = s.State
		all = append(all, s)
	}
	return all
}

func copied(t *testing.T, m vmconfig.Machine) vmconfig.Machine {
	t.Helper()
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err = vmconfig.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// corrupt gives a text or a number somewhere in a value a hostile one.
func corrupt(v reflect.Value, random *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		corrupt(v.Field(random.IntN(v.NumField())), random)
	case reflect.Slice:
		if v.Len() > 0 {
			corrupt(v.Index(random.IntN(v.Len())), random)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			corrupt(v.Elem(), random)
		}
	case reflect.String:
		v.SetString(hostileTexts[random.IntN(len(hostileTexts))])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{-1, 0, 1, 4, 65535, 65536, 1 << 40}[random.IntN(7)])
	case reflect.Bool:
		v.SetBool(!v.Bool())
	}
}

func argumentsOf(t *testing.T, s Settings) []string {
	t.Helper()
	arguments, err := s.Complete(machine(s, all(s.Machine), s.example())).Args()
	if err != nil {
		t.Fatal(err)
	}
	return arguments
}

// option is an option of QEMU with the parts of its value, as QEMU's parser reads it: key=value, separated by commas, of
// which two are one in a value. The first part may have no key.
type option struct {
	name  string
	parts map[string]string
	// twice says that a key is there twice, or several parts have none, except for a CPU.
	twice bool
}

func parsed(t *testing.T, arguments []string) (options []option) {
	t.Helper()
	for i := 0; i < len(arguments); i++ {
		o := option{name: arguments[i]}
		if !strings.HasPrefix(o.name, "-") {
			t.Errorf("%q is no option: %q", o.name, arguments)
		}
		if i+1 < len(arguments) && !slices.Contains([]string{"-S", "-no-reboot", "-nodefaults", "-no-user-config"}, o.name) {
			i++
			o.read(arguments[i])
		}
		options = append(options, o)
	}
	return options
}

func (o *option) read(value string) {
	const comma = "\x01"
	o.parts = map[string]string{}
	for part := range strings.SplitSeq(strings.ReplaceAll(value, ",,", comma), ",") {
		key, value, found := strings.Cut(part, "=")
		if !found {
			key, value = "", part
		}
		key = strings.ReplaceAll(key, comma, ",")
		if _, there := o.parts[key]; there && o.name != "-cpu" {
			o.twice = true
		}
		o.parts[key] = strings.ReplaceAll(value, comma, ",")
	}
}
