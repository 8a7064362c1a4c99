package qemu

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestFirmwareIsTheFirstPairThatExists(t *testing.T) {
	for name, test := range map[string]struct {
		mode  string
		files string
		want  *Firmware
	}{
		"none for a BIOS":                 {"bios", "", nil},
		"none by default":                 {"", "", nil},
		"Fedora's":                        {"uefi", "edk2/ovmf/OVMF_CODE.fd edk2/ovmf/OVMF_VARS.fd", &Firmware{Code: "/usr/share/edk2/ovmf/OVMF_CODE.fd", Vars: "/usr/share/edk2/ovmf/OVMF_VARS.fd"}},
		"Debian's of 4M if need be":       {"uefi", "OVMF/OVMF_CODE_4M.fd OVMF/OVMF_VARS_4M.fd", &Firmware{Code: "/usr/share/OVMF/OVMF_CODE_4M.fd", Vars: "/usr/share/OVMF/OVMF_VARS_4M.fd"}},
		"code alone is not enough":        {"uefi", "edk2/ovmf/OVMF_CODE.fd OVMF/OVMF_CODE.fd OVMF/OVMF_VARS.fd", &Firmware{Code: "/usr/share/OVMF/OVMF_CODE.fd", Vars: "/usr/share/OVMF/OVMF_VARS.fd"}},
		"2M goes before 4M":               {"uefi", "edk2/x64/OVMF_CODE.4m.fd edk2/x64/OVMF_VARS.4m.fd edk2/x64/OVMF_CODE.fd edk2/x64/OVMF_VARS.fd", &Firmware{Code: "/usr/share/edk2/x64/OVMF_CODE.fd", Vars: "/usr/share/edk2/x64/OVMF_VARS.fd"}},
		"4M takes no 2M":                  {"uefi-4m", "edk2/x64/OVMF_CODE.4m.fd edk2/x64/OVMF_VARS.4m.fd edk2/x64/OVMF_CODE.fd edk2/x64/OVMF_VARS.fd", &Firmware{Code: "/usr/share/edk2/x64/OVMF_CODE.4m.fd", Vars: "/usr/share/edk2/x64/OVMF_VARS.4m.fd"}},
		"secure takes keys":               {"secure", "OVMF/OVMF_CODE.secboot.fd OVMF/OVMF_VARS.fd OVMF/OVMF_VARS.ms.fd", &Firmware{Code: "/usr/share/OVMF/OVMF_CODE.secboot.fd", Vars: "/usr/share/OVMF/OVMF_VARS.ms.fd", Secure: true}},
		"secure 4M's variables, not code": {"secure-4m", "edk2/ovmf-4m/OVMF_CODE.secboot.fd edk2/ovmf-4m/OVMF_VARS.secboot.fd", &Firmware{Code: "/usr/share/edk2/ovmf-4m/OVMF_CODE.secboot.fd", Vars: "/usr/share/edk2/ovmf-4m/OVMF_VARS.secboot.fd", Secure: true}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for file := range strings.FieldsSeq(test.files) {
				root["usr/share/"+file] = &fstest.MapFile{}
			}
			got, err := FindFirmware(root, test.mode)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFirmwareThatIsMissingIsAnErrorThatNamesTheFiles(t *testing.T) {
	_, err := FindFirmware(fstest.MapFS{"usr/share/OVMF/OVMF_CODE_4M.fd/x": &fstest.MapFile{}}, "uefi-4m")
	if !errors.Is(err, ErrNoFirmware) || !strings.Contains(err.Error(), "/usr/share/OVMF/OVMF_CODE_4M.fd with /usr/share/OVMF/OVMF_VARS_4M.fd") {
		t.Errorf("error %v", err)
	}
	if _, err := FindFirmware(fstest.MapFS{}, "coreboot"); err == nil || errors.Is(err, ErrNoFirmware) {
		t.Errorf("error %v", err)
	}
}
