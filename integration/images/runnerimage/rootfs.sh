#!/bin/bash
# rootfs.sh DEBIAN OUT [BASE [KIND]] — makes OUT the root file system of the runner's image, except the runner itself. From
# the root directory DEBIAN of a Debian with the packages of `packages`, it takes what the runner and its machines need,
# with the libraries. With BASE, which is such a root file system, OUT is what another image has in addition: that for
# VirtualMachines (UEFI, a display, a TPM and CDs from URLs), or, if KIND is smolvm, that of the runtime of SmolVMs (what
# makes file systems of images). runner/Dockerfile and build.sh both call it, so the tested image is the shipped one.
#
# It omits what the runner does not support: displays other than SPICE and VNC, virtiofsd, ROMs to boot from a network.
set -euo pipefail
export LC_ALL=C.UTF-8
umask 022
debian=${1%/} out=$2 base=${3:-} kind=${4:-vm}
libraries=usr/lib/x86_64-linux-gnu

die() { echo "error: $*" >&2; exit 1; }

if [ -z "$base" ]; then
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
elif [ "$kind" = smolvm ]; then
  programs=(
    usr/bin/mksquashfs
    $libraries/libgcc_s.so.1 # pthread_exit loads it
  )
  files=()
else
  modules=$libraries/qemu
  programs=(
    usr/bin/swtpm
    $libraries/swtpm/libswtpm_libtpms.so.0
    $modules/block-curl.so
    $modules/hw-display-virtio-gpu.so
    $modules/hw-display-virtio-gpu-pci.so
    $modules/hw-display-virtio-vga.so
    $modules/hw-usb-redirect.so
    $modules/ui-opengl.so # the SPICE server's is linked against it
    $modules/ui-spice-core.so
    $modules/audio-spice.so
    $modules/chardev-spice.so
  )
  # Variables of the firmware without keys, and with those of Microsoft for Secure Boot.
  files=(
    usr/share/OVMF/OVMF_CODE_4M.fd
    usr/share/OVMF/OVMF_VARS_4M.fd
    usr/share/OVMF/OVMF_CODE_4M.secboot.fd
    usr/share/OVMF/OVMF_VARS_4M.ms.fd
    usr/share/qemu/keymaps/en-us
    usr/share/seabios/vgabios-virtio.bin
  )
fi

# needed FILE...: the libraries that programs of that Debian are linked against. Its own loader finds them, so neither a
# chroot nor the permissions for one are needed.
needed() {
  local list
  # Programs name the loader by its path. The list has the path that the loader was called by.
  echo lib64/ld-linux-x86-64.so.2
  list=$(for file in "$@"; do
    "$debian/lib64/ld-linux-x86-64.so.2" --library-path "$debian/lib/x86_64-linux-gnu:$debian/$libraries:$debian/$libraries/swtpm" --list "$debian/$file"
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

# take OPTION FILE...: copies files that the base does not have.
take() {
  local option=$1 file
  shift
  for file in "$@"; do
    [ -z "$base" ] || [ ! -e "$base/$file" ] || continue
    mkdir -p "$out/${file%/*}"
    cp "$option" --preserve=mode,links "$debian/$file" "$out/$file"
    taken+=("$file")
  done
}

if [ -z "$base" ]; then
  mkdir -p "$out"/{dev,etc,proc,run,sys,tmp,usr/bin,usr/sbin,usr/lib,usr/lib64}
  chmod 1777 "$out/tmp"
  for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$out/$directory"; done
else
  mkdir -p "$out"
fi

mapfile -t linked < <(needed "${programs[@]}")
taken=()
if [ -n "$base" ] && [ "$kind" = vm ]; then
  # The kernel with which a canary guest proves that KVM works.
  kernel=$(cd "$debian" && echo boot/vmlinuz-*)
  mkdir -p "$out/usr/share/kvm-operator"
  cp --preserve=mode "$debian/$kernel" "$out/usr/share/kvm-operator/vmlinuz"
  chmod 644 "$out/usr/share/kvm-operator/vmlinuz" # QEMU's user reads it
  taken+=("$kernel")
fi
take --dereference "${programs[@]}" "${linked[@]}"
take --no-dereference "${files[@]}"
packages=$(owners "${taken[@]}")
if [ -z "$base" ]; then
  ln -s ../usr/lib/os-release "$out/etc/os-release"
  # Guest images are downloaded over HTTPS. The package creates this file when it is installed, but here it may only be
  # unpacked.
  mkdir -p "$out/etc/ssl/certs"
  cat "$debian"/usr/share/ca-certificates/mozilla/*.crt >"$out/etc/ssl/certs/ca-certificates.crt"
  packages+=" ca-certificates"
fi

# The licences require their text, and scanners identify an image without a package manager by these descriptions.
mkdir -p "$out/var/lib/dpkg/status.d"
for package in $packages; do
  [ -z "$base" ] || [ ! -e "$base/var/lib/dpkg/status.d/$package" ] || continue
  dpkg-query --admindir="$debian/var/lib/dpkg" -s "$package" >"$out/var/lib/dpkg/status.d/$package"
  mkdir -p "$out/usr/share/doc/$package"
  cp --dereference --preserve=mode "$debian/usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/"
done
