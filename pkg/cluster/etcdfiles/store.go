// Package etcdfiles knows the files that hold the data of an etcd member outside its machine: the volume, and
// snapshots.
package etcdfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

const (
	// Data is the directory with etcd's data in its file system. It is not the root, because the root may contain other
	// entries (lost+found).
	Data = "data"
	// TokenFile is the file beside it with the token with which the data was created; see package cloudconfig.
	TokenFile = Data + ".ticket"
	// Image is the name of the disk with etcd's data in its directory.
	Image = "etcd.img"
	// Mark is the file beside both with the token of the snapshot that was placed last. The guest does not use it.
	Mark = "etcd.restored"
)

// Store is how a guest sees etcd's data: as a disk, or as a shared directory. The zero value means no data at all.
type Store struct {
	// Disk is the path of the disk, and Device says that it is a device of the host. If Disk is empty, the directory is
	// shared.
	Disk   string
	Device bool
}

// Find finds out how etcd's data is stored in a volume, which is a directory or a device; empty for none. mayMake says
// that a disk may be created if the directory is empty. A disk is preferred to a share, because over a share each page
// that etcd writes is a separate round trip. A directory that contains anything but a disk is shared, because its
// content may be etcd's.
//
// A guest that shared the directory can have created anything in it. If the entry with the name of the disk is not the
// operator's own file, Find returns an error, an ownfile.ErrForeign, and never falls back to sharing the directory.
// Call Find again once the volume is locked, because another machine may still be using it before that.
func Find(volume string, mayMake bool) (Store, error) {
	if volume == "" {
		return Store{}, nil
	}
	device, err := disk.IsBlockDevice(volume)
	if err != nil || device {
		return Store{Disk: volume, Device: device}, err
	}
	image := filepath.Join(volume, Image)
	switch err := ownfile.Check(image); {
	case err == nil:
		return Store{Disk: image}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return Store{}, err
	}
	entries, err := os.ReadDir(volume)
	if err != nil {
		return Store{}, err
	}
	empty := true
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, Image+before):
			return Store{Disk: image}, ownfile.Check(filepath.Join(volume, name))
		case name == disk.LockName || name == "lost+found" || name == Image+placing:
		default:
			empty = false
		}
	}
	if empty && mayMake {
		return Store{Disk: image}, nil
	}
	return Store{}, nil
}
