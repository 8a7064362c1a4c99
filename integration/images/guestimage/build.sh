#!/bin/bash
# build.sh DEST [tiny|micro|image|bare|cloud|signed]... — builds guest images from Debian packages and links them into DEST (README.md).
#
#   tiny   vmlinuz, bzImage, tiny.cpio.gz: a guest that reports what it sees of its machine, for tests of the machine
#   micro  vmlinuz, bzImage, micro.cpio.gz: the initrd of microVMs, which is the agent (smolvm/agent) and kernel modules
#   image  vmlinuz, bzImage, initrd.img, root.squashfs: Debian with systemd, containerd and Kubernetes, set up by
#          Ignition. It needs kubeall, ignition, containerd and the tools of ../addons/images, which integration/build.sh builds, in
#          DEST/.. or in $TOOLS
#   cloud  cloud.img: a disk with Debian, cloud-init and the QEMU guest agent, which UEFI boots, for VirtualMachines
#   signed signed.img: a disk with Debian's signed boot loaders and kernel, and the tiny guest, which UEFI with Secure
#          Boot starts
#   bare   bare.squashfs: the same root file system with what Flatcar has: no kubelet, no kubectl, no CNI plugins
#
# Without a name, all are built. Each is cached by the content of its inputs in
# ${KVM_OPERATOR_CACHE:-~/.cache/kvm-operator}/guest. To get newer Debian packages, remove that directory. A lock lets
# two checkouts build at the same time. Interrupting is safe at any time: nothing half-built is ever linked.
#
# The same packages result in the same bytes. DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR name other mirrors, and
# GUEST_ARCHIVES names a directory of further container images (docker archives, *.tar) for the full image.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
images=$(cd "$here/../addons" && pwd)/images
cache=${KVM_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvm-operator}/guest
mirrors=(
  "deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} bookworm main"
  "deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} bookworm-updates main"
  "deb ${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security} bookworm-security main"
)
# One fixed time for all files in the images.
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C.UTF-8

die() { echo "error: $*" >&2; exit 1; }

# install_packages PACKAGE...: installs Debian packages, as root or through sudo.
install_packages() {
  local log apt=(apt-get)
  [ "$(id -u)" = 0 ] || apt=(sudo apt-get)
  command -v apt-get >/dev/null || die "$* (or what they are called on this system) must be installed first"
  echo "==> installing $*"
  log=$(mktemp)
  if ! { "${apt[@]}" update -qq && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y -qq "$@"; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "$* cannot be installed, see the lines above"
  fi
  rm -f "$log"
}

# need PROGRAM=PACKAGE...: installs the packages of missing programs.
need() {
  local pair missing=()
  for pair in "$@"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# progress NAME COMMAND...: runs the command in the background with a line of progress every five seconds. Job control
# gives it a process group, so that an interrupt ends all its processes. The lock is closed for it, so that none of them
# can hold the lock after this script.
progress() {
  local name=$1
  shift
  set -m
  "$@" >"$work/log" 2>&1 9>&- </dev/null &
  job=$!
  set +m
  while kill -0 "$job" 2>/dev/null; do
    sleep 5 9>&- & wait $! || true
    if kill -0 "$job" 2>/dev/null; then echo "    $name: ${SECONDS}s, $(tail -n 1 "$work/log" | cut -c1-100)"; fi
  done
  if ! wait "$job"; then
    tail -n 30 "$work/log" >&2
    die "making $name failed, see the lines above"
  fi
  job=
}

# bootstrap NAME ARGUMENT...: mmdebstrap with the images' mirrors. Its mounts are in a separate mount namespace, so they
# cannot be left behind or have files removed through them. Without root, mmdebstrap does this itself.
bootstrap() {
  local name=$1 apart=()
  shift
  need mmdebstrap=mmdebstrap
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || install_packages debian-archive-keyring
  [ "$(id -u)" != 0 ] || apart=(unshare --mount --propagation private)
  progress "$name" "${apart[@]}" env TMPDIR="$work" \
    mmdebstrap --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$@" "${mirrors[@]}"
}

# kernel_version KERNEL: the name of its modules' directory.
kernel_version() { ls "$1/lib/modules"; }

# add_modules KERNEL ROOT GROUP MODULE...: modules of an initrd with their dependencies. GROUP.order is the order in
# which they are loaded.
add_modules() {
  local kernel=$1 directory=$2/modules group=$3 module file
  shift 3
  mkdir -p "$directory"
  for module in "$@"; do
    modprobe -C /dev/null -d "$kernel" -S "$(kernel_version "$kernel")" --show-depends "$module" |
      while read -r verb file _; do
        [ "$verb" = insmod ] || continue
        cp "$file" "$directory/"
        echo "${file##*/}"
      done
  done | awk '!seen[$0]++' >"$directory/$group.order"
}

# add_busybox KERNEL ROOT: adds busybox with a link for each of its programs.
add_busybox() {
  local name
  mkdir -p "$2/bin"
  cp "$1/busybox" "$2/bin/"
  "$1/busybox" --list | while read -r name; do
    [ "$name" = busybox ] || ln -s busybox "$2/bin/$name"
  done
}

# pack ROOT FILE: an initrd. An emulated machine's kernel unpacks gzip faster than formats that compress better.
pack() {
  find "$1" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  (cd "$1" && find . -print0 | sort -z | cpio --null --create --format=newc --reproducible --owner=0:0 --quiet) | gzip -9n >"$2"
}

# unpack_kernel BZIMAGE: the kernel itself, an ELF image that QEMU starts by its PVH entry. Unpacking it is more than
# half of the boot time of an emulated machine. Offsets: Documentation/arch/x86/boot.rst.
unpack_kernel() {
  local setup_sectors offset length
  setup_sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$1")
  offset=$(od -An -tu4 -j $((0x248)) -N 4 "$1")
  length=$(od -An -tu4 -j $((0x24c)) -N 4 "$1")
  dd if="$1" bs=1M iflag=skip_bytes,count_bytes skip=$((offset + (setup_sectors + 1) * 512)) count=$((length)) status=none |
    xz --decompress --single-stream
}

# build_kernel OUT: Debian's kernel with its modules, and busybox.
build_kernel() {
  need depmod=kmod xz=xz-utils
  bootstrap kernel --variant=extract --include=linux-image-amd64,busybox-static bookworm "$work/root"
  mkdir -p "$1/lib"
  mv "$work"/root/lib/modules "$1/lib/"
  mv "$work"/root/boot/vmlinuz-* "$1/bzImage"
  unpack_kernel "$1/bzImage" >"$1/vmlinuz"
  mv "$work"/root/bin/busybox "$1/busybox"
  depmod -b "$1" "$(kernel_version "$1")"
}

# build_tiny OUT KERNEL
build_tiny() {
  need cpio=cpio modprobe=kmod
  add_busybox "$2" "$work/root"
  add_modules "$2" "$work/root" base virtio_pci virtio_net virtio_balloon virtio_console virtio-rng button evdev \
    qemu_fw_cfg pvpanic-mmio pvpanic-pci
  add_modules "$2" "$work/root" uefi efivarfs
  add_modules "$2" "$work/root" disk virtio_blk crc32c_generic ext4
  add_modules "$2" "$work/root" share 9pnet_virtio 9p
  mkdir -p "$work/root/etc"
  cp "$here/tiny/init" "$here/tiny/dhcp" "$work/root/"
  pack "$work/root" "$1/tiny.cpio.gz"
}

# build_micro OUT KERNEL AGENT
build_micro() {
  need cpio=cpio modprobe=kmod
  add_modules "$2" "$work/root" micro virtio_pci virtio_console virtio_blk virtio_net virtio_balloon virtio-rng \
    crc32c_generic ext4 squashfs overlay qemu_fw_cfg
  mkdir -p "$work/root/dev" "$work/root/proc" "$work/root/sys"
  install -m 755 "$3" "$work/root/init"
  pack "$work/root" "$1/micro.cpio.gz"
}

# build_initrd OUT KERNEL
build_initrd() {
  need cpio=cpio modprobe=kmod
  add_busybox "$2" "$work/root"
  add_modules "$2" "$work/root" boot virtio_pci virtio_console virtio_blk crc32c_generic ext4 squashfs overlay qemu_fw_cfg
  add_modules "$2" "$work/root" network virtio_net
  cp "$here/initrd/init" "$here/tiny/dhcp" "$work/root/"
  pack "$work/root" "$1/initrd.img"
}

# build_root OUT KERNEL KUBEALL IGNITION ...: the root file system. It is not compressed because an emulated machine
# waits for its CPU, not for its disk.
build_root() {
  local overlay=$work/overlay programs=$work/programs
  need sqfstar=squashfs-tools depmod=kmod
  cp -a "$here/rootfs" "$overlay"
  add_kernel_modules "$2" "$overlay/usr/lib/modules/$(kernel_version "$2")"
  add_kubernetes "$3" "$overlay/usr/bin"
  install -D -m 755 "$4" "$overlay/usr/libexec/ignition"
  add_containerd "$overlay/usr/bin"
  mkdir "$overlay/sysroot"
  basename "$1" .new >"$overlay/usr/lib/guest-image"
  add_archives "$overlay/usr/share/guest-images/archives"
  add_programs "$2" "$programs"
  bootstrap root --variant=minbase --format=tar \
    --include="$(packages)" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --customize-hook="sync-in '$overlay' /" \
    --customize-hook="'$here/customize.sh' \"\$1\" '$programs' ${bare:+bare}" \
    bookworm "$work/root.tar"
  squash "$1/root.squashfs"
}

# build_bare OUT KERNEL KUBEALL IGNITION ...: the same as build_root, without what Flatcar does not have, and with curl,
# which it has.
build_bare() { bare=yes build_root "$@" && mv "$1/root.squashfs" "$1/bare.squashfs"; }

# cloud_size is the size of the cloud image's root file system.
cloud_size=900M

# build_cloud OUT KERNEL: the disk. Its root file system has what has to be written for a boot, and room for more.
build_cloud() {
  need cpio=cpio modprobe=kmod mke2fs=e2fsprogs
  local root=$work/root esp=$work/esp boot=$work/boot modules
  modules=lib/modules/$(kernel_version "$2")
  add_kernel_modules "$2" "$work/overlay/usr/$modules"
  # isofs needs it: KubeVirt writes the data of cloud-init into an ISO 9660 file system.
  (cd "$2/$modules" && cp --archive --parents -t "$work/overlay/usr/$modules" kernel/drivers/cdrom/cdrom.ko)
  bootstrap cloud --variant=minbase --format=directory \
    --include="$(grep -v '^#' "$here/cloud/packages" | paste -sd,)" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --customize-hook="sync-in '$work/overlay' /" --customize-hook="'$here/cloud/customize.sh' \"\$1\"" \
    bookworm "$root"
  add_busybox "$2" "$boot"
  add_modules "$2" "$boot" boot virtio_pci virtio_blk crc32c_generic ext4 vfat nls_cp437 nls_ascii
  cp "$here/cloud/init" "$boot/"
  mkdir -p "$esp/EFI/BOOT" "$esp/loader/entries"
  cp "$root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$esp/EFI/BOOT/BOOTX64.EFI"
  cp "$2/bzImage" "$esp/vmlinuz"
  pack "$boot" "$esp/initrd.img"
  cp "$here/cloud/loader.conf" "$esp/loader/entries/debian.conf"
  printf 'timeout 0\ndefault debian.conf\n' >"$esp/loader/loader.conf"
  find "$root" -xdev -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
  mke2fs -q -t ext4 -L root -U 6f2c1a52-9d0b-4b58-8f0e-5f0c8f3e0003 -E hash_seed=6f2c1a52-9d0b-4b58-8f0e-5f0c8f3e0004 \
    -d "$root" "$work/root.ext4" "$cloud_size"
  go run -C "$here/clouddisk" . -esp "$esp" -root "$work/root.ext4" -o "$work/cloud.img"
  cp --sparse=always "$work/cloud.img" "$1/cloud.img"
}

# build_signed OUT KERNEL TINY: the disk. The firmware knows the key that signed shim, shim the key that signed GRUB and
# the kernel, and the kernel the key that signed its modules. GRUB reads its configuration in the directory that Debian
# signed it with.
build_signed() {
  local esp=$work/esp
  bootstrap signed --variant=extract --include=shim-signed,grub-efi-amd64-signed bookworm "$work/root"
  mkdir -p "$esp/EFI/BOOT" "$esp/EFI/debian"
  cp "$work/root/usr/lib/shim/shimx64.efi.signed" "$esp/EFI/BOOT/BOOTX64.EFI"
  cp "$work/root/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" "$esp/EFI/BOOT/grubx64.efi"
  cp "$here/signed/grub.cfg" "$esp/EFI/debian/grub.cfg"
  cp "$2/bzImage" "$esp/vmlinuz"
  cp "$3/tiny.cpio.gz" "$esp/initrd.img"
  go run -C "$here/clouddisk" . -esp "$esp" -o "$work/signed.img"
  cp --sparse=always "$work/signed.img" "$1/signed.img"
}

# packages: the Debian packages of the root file system.
packages() {
  if [ -n "${bare:-}" ]; then
    { grep -vE '^#|^containernetworking-plugins$' "$here/packages"; echo curl; } | paste -sd,
  else
    grep -v '^#' "$here/packages" | paste -sd,
  fi
}

# squash FILE: packs $work/root.tar.
squash() {
  # shellcheck disable=SC2016 # for the inner shell, which is needed because a background job has no standard input
  progress "root file system" bash -c 'sqfstar -no-progress -noI -noD -noF -noX -exit-on-error "$1" <"$2"' - \
    "$1" "$work/root.tar"
}

# add_kernel_modules KERNEL DIRECTORY
add_kernel_modules() {
  local from
  from=$1/lib/modules/$(kernel_version "$1")
  mkdir -p "$2/kernel"
  grep -v '^#' "$here/modules" | (cd "$from/kernel" && xargs cp --archive --parents -t "$2/kernel")
  cp "$from"/modules.{builtin,builtin.modinfo,order} "$2/"
}

# add_kubernetes KUBEALL DIRECTORY: the binary, and links with the names of the programs that a node's system runs.
add_kubernetes() {
  install -D -m 755 "$1" "$2/kubeall"
  ln -s kubeall "$2/kubelet"
  ln -s kubeall "$2/kubectl"
}

# containerd is the list of its programs. Debian's package contains the unit that runs them, and runc.
containerd=(containerd containerd-shim-runc-v2 ctr)

# add_containerd DIRECTORY: the programs, in place of Debian's.
add_containerd() {
  local name
  for name in "${containerd[@]}"; do install -D -m 755 "$(tool "$name")" "$1/$name"; done
}

# add_programs KERNEL DIRECTORY: the programs that containers.sh makes images of, and their list.
add_programs() {
  local name
  mkdir -p "$2"
  CGO_ENABLED=0 go build -C "$here/pause" -trimpath -buildvcs=false -ldflags '-s -w' -o "$2/pause" .
  cp "$1/busybox" "$2/busybox"
  cp "$images" "$2/images"
  addons | while read -r name; do install -m 755 "$(tool "$name")" "$2/$name"; done
}

# addons: the tools in the container images of add-ons.
addons() { awk '!/^#/ { print $3 }' "$images"; }

# archives: further container images, as `docker save` writes them, from $GUEST_ARCHIVES.
archives() { [ -z "${GUEST_ARCHIVES:-}" ] || find "$GUEST_ARCHIVES" -maxdepth 1 -name '*.tar' | sort; }

# add_archives DIRECTORY: the archives, each with the list of its images.
add_archives() {
  local file name
  mkdir -p "$1"
  archives | while read -r file; do
    name=$1/$(basename "$file" .tar)
    cp "$file" "$name.tar"
    tar -xOf "$file" manifest.json | grep -oE '"RepoTags":\[[^]]*' | cut -d[ -f2 | tr -d '" ' | tr , '\n' >"$name.names"
  done
}

# tool NAME: the path of a binary that integration/build.sh linked beside or above DEST.
tool() {
  local directory
  for directory in "${TOOLS:-$dest/..}" "$dest"; do
    [ ! -x "$directory/$1" ] || { readlink -f "$directory/$1"; return; }
  done
  die "there is no $1 in ${TOOLS:-$dest/..}: run integration/build.sh ${TOOLS:-$dest/..} $1, or say where it is by TOOLS"
}

# key STAGE INPUT...: a digest of everything that the stage depends on: programs and lists here, its builder, the
# mirrors, and its inputs.
key() {
  local stage=$1 inputs=()
  case $stage in
    tiny) inputs=(tiny) ;;
    initrd) inputs=(initrd tiny/dhcp) ;;
    cloud) inputs=(cloud clouddisk modules) ;;
    signed) inputs=(signed clouddisk) ;;
    root | bare) inputs=(rootfs packages modules pause customize.sh containers.sh) ;;
  esac
  shift
  {
    [ ${#inputs[@]} = 0 ] || (cd "$here" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c "${inputs[@]}")
    [ $# = 0 ] || sha256sum "$@" | cut -c1-64
    declare -f
    printf '%s\n' "$SOURCE_DATE_EPOCH" "${mirrors[@]}"
  } | sha256sum | cut -c1-16
}

# stage NAME INPUT...: leaves the directory of a stage's files in $made, and builds it if it is missing. A second caller
# waits for the first. An input is a file or a directory of another stage.
stage() {
  local name=$1 input files=()
  shift
  for input in "$@"; do
    if [ -d "$input" ]; then input=$input/.key; fi
    files+=("$input")
  done
  made=$cache/$name-$(key "$name" "${files[@]}")
  build_once "$name" "$made" "$@"
  touch "$made"
}

# clean_up: removes nothing before the processes that use it have ended.
clean_up() {
  local status=$?
  if [ -n "$job" ]; then
    kill -- -"$job" 2>/dev/null || true
    wait "$job" || true
  fi
  rm -rf --one-file-system "$work" "$out"
  [ "$status" = 0 ] || echo "error: the guest $stage was not built" >&2
  exit "$status"
}

# build_once NAME DIRECTORY INPUT...: builds a stage, and removes stages that no checkout has used for a month.
build_once() (
  stage=$1 final=$2 out=$2.new work='' job=''
  shift 2
  flock -n 9 || { echo "==> guest $stage: waiting for another build of it"; flock 9; }
  [ ! -e "$final" ] || exit 0
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  SECONDS=0
  echo "==> guest $stage: building"
  find "$cache" -mindepth 1 -maxdepth 1 -name "$stage-*" -mtime +30 -exec rm -rf {} +
  rm -rf "$out"
  work=$(mktemp -d "$cache/work.XXXXXX")
  mkdir "$out"
  basename "$final" >"$out/.key"
  "build_$stage" "$out" "$@"
  mv "$out" "$final"
  echo "==> guest $stage: built in ${SECONDS}s"
) 9>"$cache/$1.lock"

link() { ln -sfn "$1" "$dest/${1##*/}"; }

tiny() {
  stage tiny "$kernel"
  link "$made/tiny.cpio.gz"
}

# micro: the agent is built each time, which is quick, and its content decides whether the rest has to be. A subshell, so
# that the file is removed whatever happens.
micro() (
  agent=$(mktemp -d "$cache/agent.XXXXXX")
  trap 'rm -rf "$agent"' EXIT
  CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$here/../../.." -trimpath -buildvcs=false -ldflags '-s -w -buildid=' \
    -o "$agent/agent" ./smolvm/agent || die "the agent of microVMs was not built"
  stage micro "$kernel" "$agent/agent"
  link "$made/micro.cpio.gz"
)

image() { full root; }

bare() { full bare; }

cloud() {
  stage cloud "$kernel"
  link "$made/cloud.img"
}

signed() {
  stage tiny "$kernel"
  stage signed "$kernel" "$made"
  link "$made/signed.img"
}

# full STAGE: an image with the initrd that boots it.
full() {
  local name binaries=() archives
  for name in kubeall ignition "${containerd[@]}" $(addons); do binaries+=("$(tool "$name")") || exit 1; done
  stage initrd "$kernel"
  link "$made/initrd.img"
  mapfile -t archives < <(archives)
  stage "$1" "$kernel" "${binaries[@]}" "$images" "${archives[@]}"
  link "$made/$1.squashfs"
}

[ $# -ge 1 ] || die "usage: $0 DEST [tiny|micro|image|bare|cloud|signed]..."
mkdir -p "$cache" "$1"
dest=$(cd "$1" && pwd)
shift
[ $# -ge 1 ] || set -- tiny micro image bare cloud signed
for target in "$@"; do
  case $target in
    tiny | micro | image | bare | cloud | signed) ;;
    *) die "there is no guest image $target (there are: tiny, micro, image, bare, cloud, signed)" ;;
  esac
done
stage kernel
kernel=$made
link "$kernel/vmlinuz"
link "$kernel/bzImage"
for target in "$@"; do "$target"; done
