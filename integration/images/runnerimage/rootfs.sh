#!/bin/bash
# rootfs.sh DEBIAN OUT — makes OUT the root file system of the runner's image, except the runner itself. From the root
# directory DEBIAN of a Debian with the packages of `packages`, it takes what the runner and its machines need, with the
# libraries. runner/Dockerfile and build.sh both call it, so the tested image is the shipped one.
#
# It omits what only machines need that the runner does not support yet: displays (modules ui-*, hw-display-*, audio-*;
# keymaps; the BIOS of their cards), UEFI (package ovmf), virtiofsd, swtpm, ROMs to boot from a network.
set -euo pipefail
export LC_ALL=C.UTF-8
umask 022
debian=${1%/} out=$2
libraries=usr/lib/x86_64-linux-gnu

die() { echo "error: $*" >&2; exit 1; }

# Programs. Their accelerators are in QEMU itself.
programs=(
  usr/bin/qemu-system-x86_64
  sbin/mkfs.ext4 # pkg/vm/disk calls it
)
files=(
  etc/mke2fs.conf
  usr/lib/os-release # scanners for known vulnerabilities also look for the distribution
  usr/share/seabios/bios-256k.bin
  usr/share/seabios/bios-microvm.bin
  usr/share/qemu/qboot.rom
  usr/share/qemu/kvmvapic.bin
  usr/share/qemu/linuxboot_dma.bin # -kernel with a bzImage
  usr/share/qemu/pvh.bin           # -kernel with an ELF file
)

# needed FILE...: the libraries that programs of that Debian are linked against. Its own loader finds them, so neither a
# chroot nor the permissions for one are needed.
needed() {
  local list
  # Programs name the loader by its path. The list has the path that the loader was called by.
  echo lib64/ld-linux-x86-64.so.2
  list=$(for file in "$@"; do
    "$debian/lib64/ld-linux-x86-64.so.2" --library-path "$debian/lib/x86_64-linux-gnu:$debian/$libraries" --list "$debian/$file"
  done) || die "the libraries of $* cannot be listed: $list"
  ! grep 'not found' <<<"$list" >&2 || die "libraries are missing, see above"
  sed -nE "s|^.* => $debian/(.*/lib[^/]+) \(0x.*$|\1|p" <<<"$list" | sort -u
}

# owners FILE...: the packages that the files are from. They are registered under their path from before /lib became a
# link to /usr/lib, or under their current path.
owners() {
  local all=("${@/#//}") found file
  found=$(dpkg-query --admindir="$debian/var/lib/dpkg" -S "${all[@]}" "${all[@]/#//usr}" "${all[@]/#\/usr/}" 2>/dev/null || true)
  for file in "$@"; do
    grep -q "/${file##*/}\$" <<<"$found" || die "no package has /$file"
  done
  sed -nE 's/^([a-z0-9.+-]+)(:[a-z0-9]+)?: .*/\1/p' <<<"$found" | sort -u
}

mkdir -p "$out"/{dev,etc,proc,run,sys,tmp,usr/bin,usr/sbin,usr/lib,usr/lib64}
chmod 1777 "$out/tmp"
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$out/$directory"; done

mapfile -t linked < <(needed "${programs[@]}")
for file in "${programs[@]}" "${linked[@]}"; do
  mkdir -p "$out/${file%/*}"
  cp --dereference --preserve=mode "$debian/$file" "$out/$file"
done
for file in "${files[@]}"; do
  mkdir -p "$out/${file%/*}"
  cp --no-dereference --preserve=mode,links "$debian/$file" "$out/$file"
done
ln -s ../usr/lib/os-release "$out/etc/os-release"
# Guest images are downloaded over HTTPS. The package creates this file when it is installed, but here it may only be
# unpacked.
mkdir -p "$out/etc/ssl/certs"
cat "$debian"/usr/share/ca-certificates/mozilla/*.crt >"$out/etc/ssl/certs/ca-certificates.crt"

# The licences require their text, and scanners identify an image without a package manager by these descriptions.
mkdir -p "$out/var/lib/dpkg/status.d"
packages=$(owners "${programs[@]}" "${linked[@]}" "${files[@]}")
for package in $packages ca-certificates; do
  dpkg-query --admindir="$debian/var/lib/dpkg" -s "$package" >"$out/var/lib/dpkg/status.d/$package"
  mkdir -p "$out/usr/share/doc/$package"
  cp --dereference --preserve=mode "$debian/usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/"
done
