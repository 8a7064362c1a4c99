package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudinit"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// readCloudInit reads the files for cloud-init. A mistake in them is reported before anything is made.
func (p *preparation) readCloudInit(context.Context) error {
	if !p.settings.Machine.CloudInit {
		return nil
	}
	var files [3][]byte
	for i, name := range vmconfig.CloudInitFiles {
		content, err := readUpTo(filepath.Join(p.settings.CloudInit, name), cloudinit.MaxData)
		if errors.Is(err, fs.ErrNotExist) && i == len(files)-1 {
			break
		}
		if err != nil {
			return keeper.Failf(keeper.ReasonBootDataMissing, "%w: the Secret with the data for cloud-init has to be mounted there", err)
		}
		files[i] = content
	}
	names := make([]string, 0, len(p.settings.Machine.Drives))
	for _, d := range p.settings.disks() {
		names = append(names, d.Name)
	}
	if !p.settings.Machine.DiskLinks {
		names = nil
	}
	links, err := cloudinit.DiskLinks(names...)
	if err != nil {
		return keeper.Because(keeper.ReasonSettingsInvalid, err)
	}
	p.cloudInit = cloudinit.Data{MetaData: files[0], UserData: files[1], NetworkConfig: files[2], VendorData: links}
	_, err = p.cloudInit.Size()
	return keeper.Because(keeper.ReasonBootDataInvalid, err)
}

// readUpTo returns the beginning of a file: as much as limit, and one more byte if there is more.
func readUpTo(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	return content, errors.Join(err, file.Close())
}

// makeCloudInit makes the disk for cloud-init. It is in memory, because it has secrets.
func (p *preparation) makeCloudInit(context.Context) error {
	if !p.settings.Machine.CloudInit {
		return nil
	}
	image, err := inMemory(cloudInitSerial)
	if err != nil {
		return keeper.Because(keeper.ReasonInternal, err)
	}
	err = cloudinit.Write(image, p.cloudInit)
	p.cloudInit = cloudinit.Data{}
	var readOnly *os.File
	if err == nil {
		// QEMU takes a file descriptor only for the way in which it was opened.
		readOnly, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", image.Fd()))
	}
	err = errors.Join(err, image.Close())
	p.cloudInitDescriptor, err = p.GiveDisk(readOnly, err)
	return err
}

// inMemory returns an empty file that is in no directory (memfd_create(2)).
func inMemory(name string) (*os.File, error) {
	descriptor, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	return os.NewFile(uintptr(descriptor), name), nil
}
