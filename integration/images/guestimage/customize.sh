#!/bin/bash
# customize.sh ROOT PROGRAMS [bare] — completes the root file system of the full image once its packages and files are
# in place. mmdebstrap calls it. PROGRAMS is the directory of the programs that containers.sh makes images of.
set -euo pipefail
root=$1 programs=$2 bare=${3:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

depmod -b "$root" "$(ls "$root/usr/lib/modules")"
# A binary built on a newer system than the image's may need a newer C library.
chroot "$root" /usr/libexec/ignition -version >/dev/null || { echo "ignition does not run in the image" >&2; exit 1; }
"$here/containers.sh" "$root" "$programs"
if [ "$bare" = bare ]; then
  # The layer of the container images keeps the binary. The node's own system has no Kubernetes on its path.
  rm "$root"/usr/bin/{kubeall,kubelet,kubectl}
fi

rm "$root"/usr/bin/{containerd-shim,containerd-shim-runc-v1} # Debian's; nothing runs them
chroot "$root" containerd --version

# Only the units in the image's preset are enabled, whatever the packages have enabled.
find "$root/etc/systemd/system" -mindepth 1 -delete
chroot "$root" systemctl preset-all
# Every unit costs an emulated machine a second. These units serve hardware or features that no guest here uses.
chroot "$root" systemctl mask \
  dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount sys-fs-fuse-connections.mount \
  sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service \
  systemd-network-generator.service systemd-pcrphase-sysinit.service systemd-pcrphase.service systemd-random-seed.service \
  systemd-repart.service systemd-sysusers.service systemd-update-utmp-runlevel.service systemd-update-utmp.service

# An unset machine id causes a first boot, on which Ignition's preset is applied.
rm -f "$root/etc/machine-id" "$root/var/lib/dbus/machine-id"
ln -sfn ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
echo guest >"$root/etc/hostname"
rm -rf "$root"/var/cache/{apt,debconf,ldconfig}/* "$root"/var/log/* "$root"/var/lib/apt/lists/*
