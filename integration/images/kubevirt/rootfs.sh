#!/bin/bash
# rootfs.sh ROOT PROGRAMS KUBEVIRT — makes ROOT, a Debian with the packages of `packages`, the root file system of the image
# for nodes. PROGRAMS is the directory of KubeVirt's programs, and KUBEVIRT its source, with the settings of libvirt that
# upstream's image has.
set -euo pipefail
export LC_ALL=C.UTF-8
umask 022
root=$1 programs=$2 kubevirt=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launcher=$kubevirt/cmd/virt-launcher

rm -rf "$root"/usr/{include,lib/x86_64-linux-gnu/pkgconfig,lib/systemd} "$root"/usr/share/{doc,i18n,locale,man,zoneinfo}
rm -rf "$root"/var/{cache,lib/apt,lib/dpkg,run}
find "$root/usr/lib" -name '*.a' -delete
# virt-handler follows this link from outside, so it is relative.
ln -s ../run "$root/var/run"

install -m 755 "$programs"/* "$launcher/node-labeller/node-labeller.sh" "$root/usr/bin/"
# It passes this capability on to virt-launcher, which does not run as root.
setcap cap_net_bind_service=+ep "$root/usr/bin/virt-launcher-monitor"

install -D -m 755 "$root/usr/sbin/libvirtd" "$root/usr/lib/kubevirt/virtqemud"
install -m 755 "$here/virtqemud" "$root/usr/sbin/virtqemud"
install -m 644 "$launcher/qemu.conf" "$launcher/virtqemud.conf" "$root/etc/libvirt/"
install -D -m 755 -o 107 -g 107 "$launcher/qemu" "$root/etc/libvirt/hooks/qemu"
install -m 644 "$launcher/nsswitch.conf" "$root/etc/nsswitch.conf"
# KubeVirt's user, and the one that Debian's libvirt has if it runs as root, as it does while a node is looked at.
printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'qemu:x:107:107:qemu:/home/qemu:/bin/bash' \
  'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'qemu:x:107:' 'libvirt:x:108:' 'libvirt-qemu:x:64055:' >"$root/etc/group"
install -d -o 107 -g 107 "$root/home/qemu"
# KubeVirt looks for firmware by these names.
for part in CODE VARS; do ln -s "OVMF_${part}_4M.fd" "$root/usr/share/OVMF/OVMF_$part.fd"; done
ln -s OVMF_CODE_4M.secboot.fd "$root/usr/share/OVMF/OVMF_CODE.secboot.fd"
ln -s OVMF_VARS_4M.ms.fd "$root/usr/share/OVMF/OVMF_VARS.secboot.fd"
