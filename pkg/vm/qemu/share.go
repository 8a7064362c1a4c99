package qemu

import (
	"fmt"
	"slices"
)

// Share is a directory of the host that the guest mounts by its tag: over 9p (mount -t 9p -o
// trans=virtio,version=9p2000.L), or over virtiofs if it has a Socket.
type Share struct {
	// Tag is 1 to 31 bytes and unique.
	Tag string
	// Path is the directory, for 9p.
	Path string
	// Mapped keeps the owners, modes and types of the guest's files in extended attributes
	// (security_model=mapped-xattr): on the host they are regular files and directories of QEMU's user. Otherwise they
	// are kept as they are (none), which requires root privileges on the host.
	Mapped bool
	// ReadOnly prevents the guest from writing, for 9p; with virtiofs that is the task of virtiofsd (--readonly).
	ReadOnly bool
	// Socket is the path of the Unix socket that a virtiofsd serves, at most 107 bytes. The guest's memory is then
	// shared with that process.
	Socket string
}

const maxTag = 31 // MAX_TAG_LEN of QEMU's 9p, without the terminating zero; virtiofs accepts 36

func (m Machine) checkShares(found *FieldErrors) {
	var tags []string
	for i, s := range m.Shares {
		field := fmt.Sprintf("Shares[%d]", i)
		found.unless(s.Tag != "" && len(s.Tag) <= maxTag, field+".Tag", "%q is not 1 to %d bytes", s.Tag, maxTag)
		found.unless(!slices.Contains(tags, s.Tag), field+".Tag", "%q is there twice", s.Tag)
		found.unless((s.Path != "") != (s.Socket != ""), field, "it has either Path or Socket")
		found.unless(s.Socket == "" || !s.ReadOnly, field+".ReadOnly", "what a virtiofsd serves is made read-only by virtiofsd")
		found.socket(field+".Socket", s.Socket)
		tags = append(tags, s.Tag)
	}
}

func (m Machine) addShares(a *arguments) {
	for i, s := range m.Shares {
		id := fmt.Sprintf("share%d", i)
		if s.Socket != "" {
			a.add("-chardev", "socket", "id="+id, text("path", s.Socket))
			a.add("-device", m.device("vhost-user-fs"), "chardev="+id, text("tag", s.Tag))
			continue
		}
		// Inode numbers stay unique if the directory spans several file systems.
		model := "none"
		if s.Mapped {
			model = "mapped-xattr"
		}
		directory := []string{"local", "id=" + id, text("path", s.Path), "security_model=" + model, "multidevs=remap"}
		if s.ReadOnly {
			directory = append(directory, "readonly=on")
		}
		a.add("-fsdev", directory...)
		a.add("-device", m.device("virtio-9p"), "fsdev="+id, text("mount_tag", s.Tag))
	}
}
