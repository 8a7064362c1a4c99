package qemu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Format is how a disk's content is stored.
type Format string

const (
	// Raw is the content as it is. QEMU never probes the format, because a guest could write another format's header.
	Raw Format = "raw"
	// QCOW2 is QEMU's own format.
	QCOW2 Format = "qcow2"
)

// Disk is a virtio block device, /dev/disk/by-id/virtio-<Serial> in a Linux guest. QEMU locks its file.
type Disk struct {
	// Serial is 1 to 20 letters, digits, '.', '_' or '-', and unique.
	Serial string
	// Path is the file or block device on the host.
	Path string
	// Descriptor is the file descriptor, from 3, that the open file has in QEMU's process. QEMU then uses that file,
	// whatever is at Path by now. It is open for reading and writing, or only for reading if ReadOnly. 0: QEMU opens
	// Path.
	Descriptor int
	// Format is Raw if empty.
	Format Format
	// BlockDevice says that Path is a block device and not a file. It bypasses the host's page cache.
	BlockDevice bool
	// ReadOnly prevents the guest from writing. Several machines can use such a disk.
	ReadOnly bool
	// BootIndex is the place, from 1, in the order in which firmware tries to boot. 0: not at all.
	BootIndex int
}

// NodeName returns the disk's name in the QMP commands on block nodes, such as block_resize.
func (d Disk) NodeName() string { return "disk-" + d.Serial }

// DeviceID returns the disk's name in the QMP commands and events on devices.
func (d Disk) DeviceID() string { return "virtio-" + d.Serial }

// CD is a drive for removable read-only media.
type CD struct {
	// ID is the drive's name in QMP's commands on trays and its DEVICE_TRAY_MOVED event: a letter, then letters,
	// digits, '.', '_' or '-', at most 20 bytes, and unique.
	ID string
	// Path is the medium: a path that begins with "/", or a URL of http or https. Empty: the tray is empty.
	Path string
	// Descriptor is as for disks; the file is open for reading. A URL has none.
	Descriptor int
	// BootIndex is as for disks.
	BootIndex int
}

const (
	maxSerial = 20 // VIRTIO_BLK_ID_BYTES of the virtio specification, 5.2
	maxCDs    = 6  // ports of the board's AHCI controller
)

var (
	serialPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	cdPattern     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)
	mediumPattern = regexp.MustCompile(`^(/|https?://[^/])`)
)

func (m Machine) checkDisks(found *FieldErrors) {
	var serials []string
	for i, d := range m.Disks {
		field := fmt.Sprintf("Disks[%d]", i)
		found.unless(serialPattern.MatchString(d.Serial), field+".Serial", "%q is not letters, digits, '.', '_' or '-'", d.Serial)
		found.unless(len(d.Serial) <= maxSerial, field+".Serial", "%q has more than %d bytes", d.Serial, maxSerial)
		found.unless(!slices.Contains(serials, d.Serial), field+".Serial", "%q is there twice", d.Serial)
		found.unless(d.Path != "", field+".Path", "the path is empty")
		found.unless(d.Descriptor == 0 || d.Descriptor > 2, field+".Descriptor", "%d is not 3 or more", d.Descriptor)
		found.unless(slices.Contains([]Format{"", Raw, QCOW2}, d.Format), field+".Format", "%q is neither raw nor qcow2", d.Format)
		serials = append(serials, d.Serial)
	}
	m.checkBootOrder(found)
}

func (m Machine) checkBootOrder(found *FieldErrors) {
	holder := map[int]string{}
	claim := func(field string, index int) {
		found.unless(index >= 0, field, "%d: places count from 1", index)
		found.unless(index <= 0 || holder[index] == "", field, "%d is the place of %s", index, holder[index])
		holder[index] = field
	}
	for i, d := range m.Disks {
		claim(fmt.Sprintf("Disks[%d].BootIndex", i), d.BootIndex)
	}
	for i, cd := range m.CDs {
		claim(fmt.Sprintf("CDs[%d].BootIndex", i), cd.BootIndex)
	}
}

func (m Machine) checkCDs(found *FieldErrors) {
	found.unless(len(m.CDs) == 0 || !m.microVM(), "CDs", "a microvm has none")
	found.unless(len(m.CDs) <= maxCDs, "CDs", "%d: a machine has %d at most", len(m.CDs), maxCDs)
	var ids []string
	for i, cd := range m.CDs {
		field := fmt.Sprintf("CDs[%d]", i)
		found.unless(cdPattern.MatchString(cd.ID) && len(cd.ID) <= maxSerial, field+".ID",
			"%q is not a letter and up to %d letters, digits, '.', '_' or '-'", cd.ID, maxSerial-1)
		found.unless(!slices.Contains(ids, cd.ID), field+".ID", "%q is there twice", cd.ID)
		found.unless(cd.Path == "" || mediumPattern.MatchString(cd.Path), field+".Path", "%q is neither an absolute path nor a URL of http or https", cd.Path)
		found.unless(cd.Descriptor == 0 || cd.Descriptor > 2 && strings.HasPrefix(cd.Path, "/"), field+".Descriptor", "it is 3 or more, and takes a path")
		ids = append(ids, cd.ID)
	}
}

func (m Machine) addDisks(a *arguments) {
	for _, d := range m.Disks {
		d.addNodes(a)
		device := []string{m.device("virtio-blk"), "id=" + d.DeviceID(), "drive=" + d.NodeName(), "serial=" + d.Serial}
		if m.Accelerator == KVM && !m.microVM() {
			// In software emulation a disk with its own thread can crash QEMU: if the thread finds an invalid ring,
			// because the guest has reused its memory, it raises an interrupt that only the main thread may raise. On a
			// memory-mapped bus only KVM could wake the thread.
			thread := "iothread-" + d.Serial
			a.add("-object", "iothread", "id="+thread)
			device = append(device, "iothread="+thread)
		}
		a.add("-device", withBootIndex(device, d.BootIndex)...)
	}
}

// addNodes adds the two layers of QEMU's block graph: where the bytes are and what they mean. Blocks that the guest
// discards or fills with zeros are returned to the host.
func (d Disk) addNodes(a *arguments) {
	file, format := "file-"+d.Serial, d.Format
	if format == "" {
		format = Raw
	}
	access := []string{"discard=unmap"}
	if d.ReadOnly {
		access = []string{"read-only=on"}
	}
	storage := []string{"driver=file"}
	if d.BlockDevice {
		storage = []string{"driver=host_device", "aio=native", "cache.direct=on"}
	}
	storage = append(storage, "node-name="+file, text("filename", passed(a, d.Path, d.Descriptor)))
	a.add("-blockdev", append(storage, access...)...)
	content := []string{"driver=" + string(format), "node-name=" + d.NodeName(), "file=" + file}
	if !d.ReadOnly {
		access = append(access, "detect-zeroes=unmap")
	}
	a.add("-blockdev", append(content, access...)...)
}

// passed returns where QEMU finds the bytes of a file. A file descriptor is in a set with its own number, from which
// QEMU takes a duplicate whenever it opens the file of the set (docs/interop: add-fd).
func passed(a *arguments, path string, descriptor int) string {
	if descriptor == 0 {
		return path
	}
	a.add("-add-fd", fmt.Sprintf("fd=%d", descriptor), fmt.Sprintf("set=%d", descriptor), text("opaque", path))
	return fmt.Sprintf("/dev/fdset/%d", descriptor)
}

func (m Machine) addCDs(a *arguments) {
	for i, cd := range m.CDs {
		// Unlike -blockdev, -drive supports an empty tray and finds the block driver of a URL.
		drive := []string{"if=none", "id=medium-" + cd.ID, "media=cdrom", "readonly=on"}
		if cd.Path != "" {
			drive = append(drive, "format=raw", text("file", passed(a, cd.Path, cd.Descriptor)))
		}
		a.add("-drive", drive...)
		a.add("-device", withBootIndex([]string{"ide-cd", "id=" + cd.ID, fmt.Sprintf("bus=ide.%d", i), "drive=medium-" + cd.ID}, cd.BootIndex)...)
	}
}

func withBootIndex(device []string, index int) []string {
	if index > 0 {
		device = append(device, fmt.Sprintf("bootindex=%d", index))
	}
	return device
}
