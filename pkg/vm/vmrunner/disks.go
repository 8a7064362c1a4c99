package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// opened is a disk that was opened for QEMU.
type opened struct {
	// descriptor is the file descriptor in QEMU's process.
	descriptor int
	// device says that the disk is a block device.
	device bool
	// size is in bytes.
	size int64
}

// lockDisks locks everything that at most one machine may use.
func (p *preparation) lockDisks(ctx context.Context) error {
	var paths []string
	for _, d := range p.settings.disks() {
		path := p.settings.device(d)
		if err := isDisk(path); err != nil {
			return keeper.Failf(keeper.ReasonDiskFailed, "disk %s: %w", d.Name, err)
		}
		paths = append(paths, path)
	}
	if p.settings.Machine.Firmware != vmconfig.FirmwareBIOS || p.settings.Machine.TPM {
		if err := os.MkdirAll(p.settings.Data, 0o700); err != nil {
			return keeper.BecauseOfDisk(err)
		}
		paths = append(paths, p.settings.Data)
	}
	return p.Lock(ctx, paths...)
}

// openDisks opens the disks, so that QEMU gets what was locked.
func (p *preparation) openDisks(context.Context) error {
	for _, d := range p.settings.disks() {
		file, device, err := openDisk(p.settings.device(d))
		var size int64
		if err == nil {
			size, err = file.Seek(0, io.SeekEnd)
		}
		descriptor, err := p.GiveDisk(file, err)
		if err != nil {
			return fmt.Errorf("disk %s: %w", d.Name, err)
		}
		p.disks[d.Name] = opened{descriptor: descriptor, device: device, size: size}
	}
	return nil
}

// isDisk checks that a path itself is a block device or a regular file.
func isDisk(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the pod has no volume of mode Block there", err)
	}
	if err != nil {
		return err
	}
	if mode := info.Mode(); !mode.IsRegular() && mode.Type() != fs.ModeDevice {
		return fmt.Errorf("%s is neither a block device nor a regular file", path)
	}
	return nil
}

// openDisk opens a block device, or a regular file, without following a link.
func openDisk(path string) (file *os.File, device bool, err error) {
	if err := isDisk(path); err != nil {
		return nil, false, err
	}
	if file, err = ownfile.Open(path, os.O_RDWR, 0); !errors.Is(err, ownfile.ErrForeign) {
		return file, false, err
	}
	foreign := err
	file, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_DIRECT, 0) // as for disk.OpenDevice
	if err != nil {
		return nil, false, err
	}
	// What was opened is checked: a file that is not the runner's own is refused, too.
	if info, err := file.Stat(); err != nil || info.Mode().Type() != fs.ModeDevice {
		return nil, false, errors.Join(foreign, err, file.Close())
	}
	return file, true, nil
}
