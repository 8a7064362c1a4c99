package noderunner

import (
	"cmp"
	"crypto/sha256"
	"net"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// etcdTag is the mount tag, or the serial number, of etcd's data.
const etcdTag = "etcdshare"

// machine returns the machine that the settings describe, with what has been prepared, and without the keeper's part.
func machine(s Settings, p prepared) qemu.Machine {
	m := qemu.Machine{
		Type: s.MachineType, Accelerator: p.choice.Accelerator,
		CPU: qemu.CPU{Count: s.CPUs, Nested: s.Nested}, Memory: s.Memory,
		Kernel:         &qemu.Kernel{Image: p.image.Kernel, Initrd: p.image.Initrd, CommandLine: commandLine(s.Image, p.choice.Accelerator)},
		FirmwareConfig: []qemu.FirmwareConfig{{Name: cmp.Or(s.Image.IgnitionKey, osimage.FlatcarIgnitionKey), File: s.ignition()}},
		Networks:       []qemu.Network{network(s, p)},
		ExtraArgs:      s.ExtraArgs,
	}
	for _, d := range s.Disks {
		m.Disks = append(m.Disks, qemu.Disk{Serial: d.Serial, Path: s.diskPath(d), Descriptor: p.descriptors[d.Serial], Format: "raw"})
	}
	if p.image.RootFS != "" {
		m.Disks = append(m.Disks, qemu.Disk{Serial: serialImage, Path: p.image.RootFS, Descriptor: p.descriptors[serialImage], Format: "raw", ReadOnly: true})
	}
	if p.etcd.Disk != "" {
		m.Disks = append(m.Disks, qemu.Disk{
			Serial: etcdTag, Path: p.etcd.Disk, Descriptor: p.descriptors[etcdTag], Format: "raw", BlockDevice: p.etcd.Device,
		})
	}
	for _, share := range s.shares(p.etcd) {
		m.Shares = append(m.Shares, qemu.Share{Tag: share.Tag, Path: share.Path, Mapped: p.mapped[share.Tag]})
	}
	return m
}

func network(s Settings, p prepared) qemu.Network {
	if s.Network == NetworkUser {
		return qemu.Network{User: &qemu.UserNetwork{}, MAC: macOf(s.Name)}
	}
	return p.card
}

// macOf returns the same address for the same name, because a guest may identify its interface by it. The first byte
// marks it as locally administered and unicast (IEEE 802, 8.2).
func macOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// commandLine returns the kernel's command line. A kernel that panics reboots after a delay in which its last messages
// can be read.
func commandLine(image osimage.Image, accelerator qemu.Accelerator) string {
	arguments := []string{"console=ttyS0", "net.ifnames=0", "panic=10"}
	if accelerator == qemu.TCG {
		// On a busy host an emulated timer is so late that the kernel considers it broken, and panics before its
		// console works.
		arguments = append(arguments, "no_timer_check")
	}
	return strings.Join(append(arguments, image.KernelArguments...), " ")
}

// networkUnit configures the guest's own interface and none that a CNI plugin creates. The pod's search domains are
// passed to the resolver as routing domains, because it sends names under .local only to servers with a matching
// domain; they are not search domains for the guest and its pods. All other names are sent to these servers as well
// (DNSDefaultRoute): otherwise the resolver hides a server with such domains from pods. The device already has the
// right MTU; systemd-networkd uses that of the lease only if UseMTU is set.
const networkUnit = `[Match]
Driver=virtio_net

[Network]
DHCP=yes
IPv6AcceptRA=yes
KeepConfiguration=dhcp
DNSDefaultRoute=yes

[DHCPv4]
ClientIdentifier=mac
UseMTU=yes
UseNTP=yes
UseDomains=route

[DHCPv6]
UseNTP=yes
UseDomains=route
`

// etcdDropIn mounts etcd's disk in place of the share that boot data expects, and etcdPatience allows it more time to
// appear. They are drop-ins for units of the boot data, because a unit of the same name would be replaced by the boot
// data. The unit that creates the file system is part of the boot data as well.
const (
	etcdDropIn = `[Unit]
Requires=k8s-format@dev-disk-by\x2did-virtio\x2detcdshare.service
After=k8s-format@dev-disk-by\x2did-virtio\x2detcdshare.service

[Mount]
What=/dev/disk/by-id/virtio-etcdshare
Type=ext4
Options=defaults,noatime
`
	etcdPatience = `[Unit]
JobRunningTimeoutSec=15min
`
)

// guestOwn is the configuration of the guest that only the runner knows.
func guestOwn(s Settings, etcd etcdfiles.Store) bootdata.Host {
	host := bootdata.Host{Files: []bootdata.File{
		{Path: "/etc/hostname", Content: s.Name + "\n"},
		{Path: "/etc/systemd/network/05-kvm-operator.network", Content: networkUnit},
	}}
	if etcd.Disk != "" {
		host.Files = append(host.Files,
			bootdata.File{Path: "/etc/systemd/system/var-lib-etcd.mount.d/10-disk.conf", Content: etcdDropIn},
			bootdata.File{Path: `/etc/systemd/system/dev-disk-by\x2did-virtio\x2detcdshare.device.d/10-patience.conf`, Content: etcdPatience})
	}
	return host
}
