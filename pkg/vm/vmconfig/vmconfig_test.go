package vmconfig

import (
	"slices"
	"strings"
	"testing"
)

func example() Machine {
	return Machine{
		Name: "tiny", UUID: "u", Firmware: FirmwareBIOS, MaximumCPUs: 2, MaximumRAM: 1 << 30,
		Networks: []Network{{Type: NetworkUser}}, Drives: []Drive{{Type: DriveRaw, Name: "system-disk"}, {Type: DriveCD}},
	}
}

// TestMachineIsReadAsWritten: a runner ignores fields that a later operator adds, and refuses what it does not know.
func TestMachineIsReadAsWritten(t *testing.T) {
	text, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		from, to, wrong string
	}{
		"as written":           {"", "", ""},
		"a later field":        {`{"version":1`, `{"version":1,"later":true`, ""},
		"a later version":      {`"version":1`, `"version":2`, "same major version"},
		"an unknown firmware":  {`"bios"`, `"coreboot"`, `firmware "coreboot" is unknown`},
		"an unknown network":   {`"user"`, `"bridge"`, `network 0 has the unknown type "bridge"`},
		"a disk without name":  {`"name":"system-disk"`, `"name":""`, "drive 0"},
		"no CPUs":              {`"maximumCpus":2`, `"maximumCpus":0`, "maximumCpus is 0"},
		"hardly any memory":    {`"maximumRam":1073741824`, `"maximumRam":1`, "at least 1 MiB"},
		"something else":       {text, "machine", "not a machine in JSON"},
		"a machine of nothing": {text, `{"version":1}`, "name of the machine is missing"},
	} {
		got, err := Decode(strings.Replace(text, test.from, test.to, 1))
		switch {
		case test.wrong == "" && (err != nil || len(Difference(got, example())) > 0):
			t.Errorf("%s: %v; it differs in %v", name, err, Difference(got, example()))
		case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
			t.Errorf("%s: err = %v, want %q", name, err, test.wrong)
		}
	}
}

func TestDifferenceNamesFields(t *testing.T) {
	other := example()
	other.MaximumRAM, other.TPM, other.Drives = 2<<30, true, nil
	if got, want := Difference(example(), other), []string{"drives", "maximumRam", "useTpm"}; !slices.Equal(got, want) {
		t.Errorf("they differ in %v, want %v", got, want)
	}
}

// TestLiveIsReadAsWritten: a file that lacks something is refused, because zero CPUs mean nothing.
func TestLiveIsReadAsWritten(t *testing.T) {
	live := Live{CurrentCPUs: 1, CurrentRAM: 1 << 30, PowerdownTimeout: 900, GuestShutdownStops: true, Media: []string{"", "a.iso"}}
	text, err := live.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseLive([]byte(text)); err != nil || !slices.Equal(got.Media, live.Media) || got.CurrentRAM != live.CurrentRAM || !got.GuestShutdownStops {
		t.Errorf("it is read as %+v, %v", got, err)
	}
	for _, wrong := range []string{"", "{}", `{"currentCpus":1,"currentRam":1}`, "/Runner:"} {
		if _, err := ParseLive([]byte(wrong)); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
