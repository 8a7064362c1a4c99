package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_3/types"
)

const (
	// EtcdMountTag is the 9p tag of the share with etcd's data.
	EtcdMountTag = "etcdshare"
	// ContainerDiskSerial is the serial number of the disk of images and containers.
	ContainerDiskSerial = "dockerfs"
	// KubeletDiskSerial is the serial number of the kubelet's disk.
	KubeletDiskSerial = "kubeletfs"

	// dataDirectory is where host volumes are mounted, each in a directory named by its tag.
	dataDirectory = "/data"
	shareOptions  = "trans=virtio,version=9p2000.L,cache=mmap"
	// etcdOptions adds a message size, because etcd's writes are larger than the default. Its database needs mmap.
	etcdOptions = shareOptions + ",msize=512000"
)

// storage mounts disks and shares. Nothing else may start on the root disk by mistake: units that need a mount name it
// by RequiresMountsFor.
//
// A unit of the running system formats empty disks. Ignition could do it in the initrd, but would need mkfs, udev's
// names and a systemd there, which a small image does not have.
func storage(p Params) parts {
	units := []types.Unit{
		template("k8s-format@.service", asset("k8s-format@.service")),
		disk(ContainerDiskSerial, containerdDirectory), patientDevice(ContainerDiskSerial),
		disk(KubeletDiskSerial, kubeletDirectory), patientDevice(KubeletDiskSerial),
		// Logs are on the disk whose space the kubelet watches. The root may be in memory.
		bind(kubeletDirectory+"/pod-logs", podLogDirectory),
	}
	if p.master() {
		units = append(units, share(EtcdMountTag, etcdDirectory, etcdOptions), bind(kubeletDirectory+"/audit-logs", auditLogDirectory))
	}
	for _, tag := range p.Node.MountTags {
		units = append(units, share(tag, dataDirectory+"/"+tag, shareOptions))
	}
	return parts{units: units}
}

// disk mounts the disk with the given serial number, after it was formatted.
func disk(serial, where string) types.Unit {
	device := devicePath(serial)
	format := fmt.Sprintf("k8s-format@%s.service", unit.UnitNamePathEscape(device))
	return mountUnit(where, fmt.Sprintf("Requires=%s\nAfter=%s\n", format, format), device, "ext4", "defaults,noatime")
}

func devicePath(serial string) string { return "/dev/disk/by-id/virtio-" + serial }

// patientDevice allows a disk more time to appear. After the default of 90 seconds everything that needs the disk would
// have failed permanently, and a machine on a busy host, or under software emulation, may boot more slowly than that.
func patientDevice(serial string) types.Unit {
	contents := "[Unit]\nJobRunningTimeoutSec=15min\n"
	return types.Unit{
		Name:    unit.UnitNamePathEscape(devicePath(serial)) + ".device",
		Dropins: []types.Dropin{{Name: "10-patience.conf", Contents: &contents}},
	}
}

// share mounts a directory of the host.
func share(tag, where, options string) types.Unit { return mountUnit(where, "", tag, "9p", options) }

// bind mounts a directory of another file system at a second place; systemd creates the directory.
func bind(what, where string) types.Unit {
	return mountUnit(where, fmt.Sprintf("RequiresMountsFor=%s\n", what), what, "none", "bind")
}

// mountUnit returns a mount unit. Its name has to be the escaped path.
func mountUnit(where, dependencies, what, kind, options string) types.Unit {
	description := strings.TrimPrefix(what, "/dev/disk/by-id/virtio-")
	return service(unit.UnitNamePathEscape(where)+".mount", fmt.Sprintf(`[Unit]
Description=%s at %s
%s
[Mount]
What=%s
Where=%s
Type=%s
Options=%s

[Install]
WantedBy=multi-user.target
`, description, where, dependencies, what, where, kind, options))
}
