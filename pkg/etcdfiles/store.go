// Package etcdfiles knows the files that hold the data of a member of etcd outside of its machine: the volume, and snapshots.
package etcdfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/disk"
	"github.com/kvm-operator/kvm-operator/pkg/ownfile"
)

const (
	// Data is the directory with etcd's data at the root of its file system, for the root may hold other things (lost+found).
	Data = "data"
	// Ticket is the file beside it with the ticket that the data was made with; see package cloudconfig.
	Ticket = Data + ".ticket"
	// Image is the name of the disk with etcd's data in the directory that it is kept in.
	Image = "etcd.img"
	// Mark is the file beside both with the ticket of the snapshot that was put there last. It is no file of the guest.
	Mark = "etcd.restored"
)

// Store is how a guest sees etcd's data: a disk, or a directory that it shares. The zero value is no data at all.
type Store struct {
	// Disk is the path of the disk, and Device says that it is a device of the host. Empty: the directory is shared.
	Disk   string
	Device bool
}

// Find finds out where etcd's data is in a volume, which is a directory or a device; empty for none. mayMake says that a disk is made when the
// directory is empty. A disk is preferred to a share, over which each page that etcd writes is a round trip of its own; a directory that
// holds anything but a disk is shared, because what is in it may be etcd's.
//
// A guest that shared the directory has made what it liked in it. What has the name of the disk and is not the operator's own file is an
// error, an ownfile.ErrForeign, and never a reason to share the directory instead. Find again once the volume is locked: before, another
// machine may still be at work in it.
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
