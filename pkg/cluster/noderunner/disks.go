package noderunner

import (
	"context"
	"errors"
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// lockDisks locks everything that at most one machine may use. The lock of the disk directory also covers the pod's
// network.
func (p *preparation) lockDisks(ctx context.Context) error {
	if err := os.MkdirAll(p.settings.State, 0o700); err != nil {
		return keeper.BecauseOfDisk(err)
	}
	return p.Lock(ctx, p.settings.exclusive()...)
}

// exclusive returns the directories and devices that at most one machine may use.
func (s Settings) exclusive() []string {
	paths := []string{s.State}
	if s.Etcd != "" {
		paths = append(paths, s.Etcd)
	}
	for _, share := range s.Shares {
		paths = append(paths, share.Path)
	}
	return paths
}

func (p *preparation) makeDisks(ctx context.Context) error {
	for _, d := range p.settings.Disks {
		if err := p.makeDisk(ctx, d); err != nil {
			return err
		}
	}
	return p.openEtcd()
}

func (p *preparation) makeDisk(ctx context.Context, d Disk) (err error) {
	path := p.settings.diskPath(d)
	if d.Serial == SerialOS {
		// The initrd mounts the root file system before anything could create one; the guest formats all other disks
		// itself. Formatting replaces the file, so it is opened afterwards.
		if err = disk.Create(path, d.Size); err == nil {
			err = disk.Format(ctx, path, "ROOT")
		}
		if err != nil {
			return keeper.BecauseOfDisk(err)
		}
	}
	p.descriptors[d.Serial], err = p.GiveDisk(disk.Open(path, d.Size))
	return err
}

// openEtcd opens the disk with etcd's data; there is none if the directory is shared.
func (p *preparation) openEtcd() (err error) {
	var file *os.File
	switch {
	case p.etcd.Disk == "":
		return nil
	case p.etcd.Device:
		file, err = disk.OpenDevice(p.etcd.Disk)
	default:
		// An existing disk may be larger than a new one would be, and no new one is created if none is configured.
		file, err = disk.Open(p.etcd.Disk, max(p.settings.EtcdDisk, 1))
		if file != nil && errors.Is(err, disk.ErrShrink) {
			err = nil
		}
	}
	p.descriptors[etcdTag], err = p.GiveDisk(file, err)
	return err
}
