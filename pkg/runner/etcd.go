package runner

import (
	"os"
	"path/filepath"

	"github.com/kvm-operator/kvm-operator/pkg/disk"
)

// etcdImage is the name of the disk with etcd's data in the directory that it is kept in.
const etcdImage = "etcd.img"

// etcdStore is how the guest sees etcd's data: a disk, or a directory that it shares. The zero value is no data at all.
type etcdStore struct {
	// disk is the path of the disk, and device says that it is a device of the host. Empty: the directory is shared.
	disk   string
	device bool
}

// etcd finds out where etcd's data is. A disk is preferred to a share, over which each page that etcd writes is a round trip of its
// own; a directory that holds anything but a disk is shared, for what is in it may be etcd's.
func (s Settings) etcd() (etcdStore, error) {
	if s.Etcd == "" {
		return etcdStore{}, nil
	}
	device, err := disk.IsBlockDevice(s.Etcd)
	if err != nil || device {
		return etcdStore{disk: s.Etcd, device: device}, err
	}
	image := filepath.Join(s.Etcd, etcdImage)
	entries, err := os.ReadDir(s.Etcd)
	if err != nil {
		return etcdStore{}, err
	}
	empty := true
	for _, e := range entries {
		switch e.Name() {
		case etcdImage:
			return etcdStore{disk: image}, nil
		case disk.LockName, "lost+found":
		default:
			empty = false
		}
	}
	if empty && s.EtcdDisk > 0 {
		return etcdStore{disk: image}, nil
	}
	return etcdStore{}, nil
}
