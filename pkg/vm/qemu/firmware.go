package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Firmware is UEFI firmware: OVMF or similar.
type Firmware struct {
	// Code is the path of the firmware's code, which QEMU does not write. Required.
	Code string
	// Vars is the path of this machine's own copy of the firmware's variables. Required; it matches Code, see
	// FindFirmware.
	Vars string
	// VarsDescriptor is the file descriptor, from 3, that the copy, open for reading and writing, has in QEMU's process.
	// 0: QEMU opens Vars.
	VarsDescriptor int
	// Secure protects the variables from the guest's kernel, as secure boot requires.
	Secure bool
}

// ErrNoFirmware says that none of the files that FindFirmware knows exists.
var ErrNoFirmware = errors.New("no firmware found")

// firmwareFiles are a firmware's code and its initial variables, relative to the root directory.
type firmwareFiles struct{ code, vars string }

// Where distributions keep OVMF: Fedora, Arch, Debian. A pair has one size, 2M or 4M, and is from one build; variables
// of another build leave the guest without a boot entry, or do not fit at all.
var (
	firmware4M = []firmwareFiles{
		{"usr/share/edk2/ovmf-4m/OVMF_CODE.fd", "usr/share/edk2/ovmf-4m/OVMF_VARS.fd"},
		{"usr/share/edk2/x64/OVMF_CODE.4m.fd", "usr/share/edk2/x64/OVMF_VARS.4m.fd"},
		{"usr/share/OVMF/OVMF_CODE_4M.fd", "usr/share/OVMF/OVMF_VARS_4M.fd"},
	}
	firmware2M = []firmwareFiles{
		{"usr/share/edk2/ovmf/OVMF_CODE.fd", "usr/share/edk2/ovmf/OVMF_VARS.fd"},
		{"usr/share/edk2/x64/OVMF_CODE.fd", "usr/share/edk2/x64/OVMF_VARS.fd"},
		{"usr/share/OVMF/OVMF_CODE.fd", "usr/share/OVMF/OVMF_VARS.fd"},
	}
	// Debian's variables .ms contain Microsoft's keys; Fedora's .secboot do as well.
	firmwareSecure4M = []firmwareFiles{
		{"usr/share/edk2/ovmf-4m/OVMF_CODE.secboot.fd", "usr/share/edk2/ovmf-4m/OVMF_VARS.secboot.fd"},
		{"usr/share/edk2/x64/OVMF_CODE.secboot.4m.fd", "usr/share/edk2/x64/OVMF_VARS.4m.fd"},
		{"usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "usr/share/OVMF/OVMF_VARS_4M.ms.fd"},
	}
	firmwareSecure2M = []firmwareFiles{
		{"usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"},
		{"usr/share/edk2/x64/OVMF_CODE.secboot.fd", "usr/share/edk2/x64/OVMF_VARS.fd"},
		{"usr/share/OVMF/OVMF_CODE.secboot.fd", "usr/share/OVMF/OVMF_VARS.ms.fd"},
	}
)

// firmwareModes are the candidates of each mode; the first pair of which both files exist is used.
var firmwareModes = map[string][]firmwareFiles{
	"uefi":      append(append([]firmwareFiles{}, firmware2M...), firmware4M...),
	"uefi-4m":   firmware4M,
	"secure":    append(append([]firmwareFiles{}, firmwareSecure2M...), firmwareSecure4M...),
	"secure-4m": firmwareSecure4M,
}

// FindFirmware finds the firmware for a mode, uefi, uefi-4m, secure or secure-4m, in a file system, usually
// os.DirFS("/"). Vars of the result is a template: the machine needs its own writable copy, created once and kept with
// the name of Code. For mode bios and the empty mode it returns nil and no error. The error is ErrNoFirmware if no file
// exists.
func FindFirmware(root fs.FS, mode string) (*Firmware, error) {
	if mode == "" || mode == "bios" {
		return nil, nil
	}
	candidates, ok := firmwareModes[mode]
	if !ok {
		return nil, fmt.Errorf("firmware %q is none of bios, uefi, uefi-4m, secure and secure-4m", mode)
	}
	var tried []string
	for _, files := range candidates {
		if exists(root, files.code) && exists(root, files.vars) {
			return &Firmware{Code: path.Join("/", files.code), Vars: path.Join("/", files.vars), Secure: strings.HasPrefix(mode, "secure")}, nil
		}
		tried = append(tried, fmt.Sprintf("/%s with /%s", files.code, files.vars))
	}
	return nil, fmt.Errorf("find firmware %s: %w; looked for %s", mode, ErrNoFirmware, strings.Join(tried, ", "))
}

func exists(root fs.FS, name string) bool {
	info, err := fs.Stat(root, name)
	return err == nil && info.Mode().IsRegular()
}

func (m Machine) checkFirmware(found *FieldErrors) {
	if m.Firmware == nil {
		return
	}
	found.unless(!m.microVM(), "Firmware", "a microvm has its own")
	found.unless(m.Firmware.Code != "", "Firmware.Code", "the path is empty")
	found.unless(m.Firmware.Vars != "", "Firmware.Vars", "the path is empty")
	found.unless(m.Firmware.VarsDescriptor == 0 || m.Firmware.VarsDescriptor > 2, "Firmware.VarsDescriptor", "%d is less than 3", m.Firmware.VarsDescriptor)
	found.unless(m.Firmware.Code == "" || m.Firmware.Code != m.Firmware.Vars, "Firmware.Vars", "the file is the code's")
}

func (f Firmware) boardOptions() []string {
	options := []string{"pflash0=firmware-code", "pflash1=firmware-vars"}
	if f.Secure {
		options = append(options, "smm=on")
	}
	return options
}

func (m Machine) addFirmware(a *arguments) {
	if m.Firmware == nil {
		return
	}
	a.add("-blockdev", "driver=file", "node-name=firmware-code-file", text("filename", m.Firmware.Code), "read-only=on")
	a.add("-blockdev", "driver=raw", "node-name=firmware-code", "file=firmware-code-file", "read-only=on")
	a.add("-blockdev", "driver=file", "node-name=firmware-vars-file", text("filename", passed(a, m.Firmware.Vars, m.Firmware.VarsDescriptor)))
	a.add("-blockdev", "driver=raw", "node-name=firmware-vars", "file=firmware-vars-file")
	if m.Firmware.Secure {
		a.add("-global", "driver=cfi.pflash01", "property=secure", "value=on")
	}
}
