package osimage

import (
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
)

// find returns an image that is in the cache, complete and verified. It writes only the time of the last use, and works
// without that, because the machines of a host see the cache read-only.
func (c *Cache) find(image Image) (Local, bool) {
	directory, err := c.slotOf(image)
	if err != nil {
		return Local{}, false
	}
	use := slots.Find(directory)
	if use == nil {
		return Local{}, false
	}
	local, ok := whole(directory, image)
	if !ok {
		use.Drop()
		return Local{}, false
	}
	use.Touch()
	local.use = use
	return local, true
}

// whole reports whether all files of an image, as they are now, are verified according to the manifest.
func whole(directory string, image Image) (Local, bool) {
	if info, err := os.Stat(directory); err != nil || info.Mode().Perm()&slots.Mode != slots.Mode {
		return Local{}, false
	}
	known, paths := loadManifest(directory), map[string]string{}
	for _, p := range image.parts() {
		path, owned := p.path(directory)
		entry, ok := known.Files[p.name]
		now, err := slots.StampOf(path)
		if !ok || err != nil || now != entry.Stamp || owned && !isOpen(path) {
			return Local{}, false
		}
		paths[p.name] = path
	}
	return localAt(paths), true
}

// isOpen reports whether a QEMU that is not root can read a file of the cache.
func isOpen(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm() == modeOfFile
}
