package ociimage

import (
	"archive/tar"
	"path"
	"strings"
)

// Layers that were copied from an overlayfs, instead of being made for a registry, have its own forms of what lower layers have
// to lose (Linux, Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories"). The overlay of the guest would
// take them for its own.

// overlayAttributes are the prefixes of overlayfs's own extended attributes, without that of records. Who may not set the first
// ones mounts with the option userxattr, and has the others.
var overlayAttributes = [...]string{"trusted.overlay.", "user.overlay."}

// goneNames are the names that a layer has as whiteouts of overlayfs.
type goneNames struct {
	layer int
	names map[nameIn]bool
}

type nameIn struct {
	directory *node
	base      string
}

// isGone reports whether an entry is what overlayfs has in place of a file that was removed: a character device 0, 0. All of
// them may be one file, so that an archive has the others as hard links to the first. It remembers that.
func (t *tree) isGone(directory *node, base string, h *tar.Header, layer int) (bool, error) {
	if t.gone.names == nil || t.gone.layer != layer {
		t.gone = goneNames{layer, map[nameIn]bool{}}
	}
	gone := h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0
	if h.Typeflag == tar.TypeLink && len(t.gone.names) > 0 {
		name, err := cleaned(h.Linkname)
		if err != nil {
			return false, err
		}
		parent, target := path.Split(name)
		in, err := t.directory(parent, 0, false)
		if err != nil {
			return false, err
		}
		gone = t.gone.names[nameIn{in, target}]
	}
	if gone {
		t.gone.names[nameIn{directory, base}] = true
	} else {
		delete(t.gone.names, nameIn{directory, base})
	}
	return gone, nil
}

// hideIfOpaque hides what lower layers have in a directory whose entry says so in the way of overlayfs.
func (t *tree) hideIfOpaque(directory *node, h *tar.Header, layer int) {
	if h.Typeflag != tar.TypeDir {
		return
	}
	for _, prefix := range overlayAttributes {
		if h.PAXRecords[extended+prefix+"opaque"] == "y" {
			t.hide(directory, layer)
		}
	}
}

// isKept reports whether a record of a header is an extended attribute that a file keeps.
func isKept(key string) bool {
	name, is := strings.CutPrefix(key, extended)
	for _, prefix := range overlayAttributes {
		is = is && !strings.HasPrefix(name, prefix)
	}
	return is
}
