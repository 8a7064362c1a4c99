#!/bin/bash
# customize.sh ROOT — completes the root file system of the cloud image once its packages and modules are in place.
# mmdebstrap calls it.
set -euo pipefail
root=$1

depmod -b "$root" "$(ls "$root/usr/lib/modules")"
# The disk with the data is found by its label; other sources cost time.
echo 'datasource_list: [NoCloud, None]' >"$root/etc/cloud/cloud.cfg.d/90_dpkg.cfg"
# An emulated machine does not need what serves hardware and features that no guest here uses.
chroot "$root" systemctl mask \
  dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount \
  sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service systemd-networkd-wait-online.service \
  systemd-pcrphase-sysinit.service systemd-pcrphase.service systemd-repart.service apt-daily.timer apt-daily-upgrade.timer \
  dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
chroot "$root" systemctl enable systemd-networkd.service systemd-resolved.service
rm -f "$root/etc/machine-id" "$root/var/lib/dbus/machine-id"
touch "$root/etc/machine-id"
echo 'LABEL=root / ext4 defaults 0 1' >"$root/etc/fstab"
ln -sfn ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
rm -f "$root/etc/hostname"
rm -rf "$root"/var/cache/{apt,debconf,ldconfig}/* "$root"/var/log/* "$root"/var/lib/apt/lists/*
