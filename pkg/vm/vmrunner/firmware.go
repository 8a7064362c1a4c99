package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// prepareFirmware finds the firmware of the machine, and opens the machine's own copy of its variables. QEMU sees the
// firmware's code, because it is below /usr/share.
func (p *preparation) prepareFirmware(context.Context) error {
	found, err := qemu.FindFirmware(os.DirFS(p.root), p.settings.Machine.Firmware)
	switch {
	case errors.Is(err, qemu.ErrNoFirmware):
		return keeper.Failf(keeper.ReasonFirmwareMissing, "%w: use an image of the runner that has it, or spec.vm.firmware bios", err)
	case err != nil:
		return keeper.Because(keeper.ReasonSettingsInvalid, err)
	case found == nil:
		return nil
	}
	found.Code = filepath.Join(p.root, found.Code)
	if err := p.Readable(found.Code); err != nil {
		return keeper.Because(keeper.ReasonFirmwareMissing, err)
	}
	file, err := openVars(filepath.Join(p.root, found.Vars), p.settings.vars(found.Code))
	if found.VarsDescriptor, err = p.GiveDisk(file, err); err != nil {
		return fmt.Errorf("the firmware's variables: %w", err)
	}
	found.Vars = file.Name()
	p.firmware = found
	return nil
}

// vars returns the path of the variables that belong to a firmware's code: those of another build leave the guest
// without a boot entry, or do not fit at all.
func (s Settings) vars(code string) string {
	return filepath.Join(s.Data, strings.TrimSuffix(filepath.Base(code), ".fd")+"-vars.fd")
}

// openVars opens a machine's own variables, which are a copy of the template at first.
func openVars(template, path string) (*os.File, error) {
	file, err := ownfile.Open(path, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	content, err := os.ReadFile(template)
	if err == nil {
		err = store(path, content)
	}
	if err != nil {
		return nil, err
	}
	return ownfile.Open(path, os.O_RDWR, 0)
}
