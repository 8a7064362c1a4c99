#!/bin/bash
# build.sh DEST [smolvm] — builds the images of pods that run machines without a container engine: DEST/runner-image.tar for nodes,
# DEST/vm-runner-image.tar for VirtualMachines and DEST/smolvm-runtime-image.tar for SmolVMs, OCI archives for
# `ctr -n k8s.io images import`. The first two have the same files and settings as those of runner/Dockerfile. All have
# the layers of the first. The third needs vmlinuz and micro.cpio.gz of ../guestimage in $GUESTS, or DEST/guest. With
# smolvm, only the third is built.
#
# Their systems, QEMU with libraries from Debian packages, are cached by the content of their inputs in
# ${KVM_OPERATOR_CACHE:-~/.cache/kvm-operator}/runnerimage. To get newer Debian packages, remove that directory. Only
# the runner's layer is built each time. A lock lets two checkouts build at the same time. Interrupting is safe at any
# time: nothing half-built is ever left in DEST.
#
# The same packages and sources result in the same bytes. VERSION is the version of a release; RUNNER_IMAGE,
# VM_RUNNER_IMAGE and RUNTIME_IMAGE are the names of the images. DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR name other mirrors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=${KVM_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvm-operator}/runnerimage
project=github.com/kvm-operator/kvm-operator/pkg/project
mirrors=(
  "deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie main"
  "deb ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie-updates main"
  "deb ${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security} trixie-security main"
)
# One fixed time for all files in the image, as in pack.
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

# start VARIABLE COMMAND...: starts a job in a separate process group, so that it can be stopped with all processes that
# it started. The lock is closed for it, so that it cannot hold the lock after this script.
start() {
  local -n process=$1
  shift
  set -m
  "$@" 9>&- &
  process=$!
  set +m
}

# end PROCESS: stops a job with all processes that it started, and waits for it.
end() {
  [ -z "$1" ] || { kill -- -"$1" && wait "$1"; } 2>/dev/null || true
}

tick() {
  while sleep 5; do echo "    $1: ${SECONDS}s, $(tail -n 1 "$work/log" | cut -c1-100)"; done
}

# logged COMMAND...: replaces this process by the command, so that waiting for it also waits for its cleanup.
logged() { exec "$@" >"$work/log" 2>&1; }

# progress NAME COMMAND...: runs the command with a line of progress every five seconds.
progress() {
  local name=$1
  shift
  : >"$work/log"
  start job logged "$@"
  start ticker tick "$name"
  if ! wait "$job"; then
    tail -n 30 "$work/log" >&2
    die "making $name failed, see the lines above"
  fi
  end "$ticker"
  job='' ticker=''
}

# build_system OUT VM_OUT SMOLVM_OUT: the layers with everything except the runner, for nodes and what VirtualMachines and
# SmolVMs need besides.
# Nothing runs inside of that Debian, so nothing of this machine is mounted there. An interrupt could leave such a mount
# behind, and the cleanup would delete files in it.
build_system() {
  local packages
  packages=$(grep -v '^#' "$here/packages" | paste -sd,)
  command -v mmdebstrap >/dev/null || install_packages mmdebstrap
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || install_packages debian-archive-keyring
  progress "runner's system" env TMPDIR="$work" mmdebstrap --variant=extract --include="$packages" \
    --skip=chroot/mount --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --aptopt='APT::Install-Recommends "false"' \
    --extract-hook="'$here/register.sh' \"\$1\"" --extract-hook="'$here/rootfs.sh' \"\$1\" \"\$1/image\"" \
    --extract-hook="'$here/rootfs.sh' \"\$1\" \"\$1/vm-image\" \"\$1/image\"" \
    --extract-hook="'$here/rootfs.sh' \"\$1\" \"\$1/smolvm-image\" \"\$1/image\" smolvm" \
    --extract-hook="sync-out /image '$work/image'" --extract-hook="sync-out /vm-image '$work/vm-image'" \
    --extract-hook="sync-out /smolvm-image '$work/smolvm-image'" trixie /dev/null "${mirrors[@]}"
  pack_layer "$work/image" "$1"
  pack_layer "$work/vm-image" "$2"
  pack_layer "$work/smolvm-image" "$3"
}

pack_layer() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$1" -cf "$2" .
}

# system_key: a digest of everything that the system depends on.
system_key() {
  {
    cat "$here/packages" "$here/register.sh" "$here/rootfs.sh"
    declare -f build_system pack_layer
    printf '%s\n' "$SOURCE_DATE_EPOCH" "${mirrors[@]}"
  } | sha256sum | cut -c1-16
}

# build_system_once FILE VM_FILE SMOLVM_FILE: builds the systems if they are missing. A second caller waits for the first.
build_system_once() {
  exec 9>"$cache/system.lock"
  flock -n 9 || { echo "==> runner's system: waiting for another build of it"; flock 9; }
  if [ ! -e "$1" ] || [ ! -e "$2" ] || [ ! -e "$3" ]; then
    SECONDS=0
    echo "==> runner's system: building"
    build_system "$work/system.tar" "$work/vm-system.tar" "$work/smolvm-system.tar"
    mv "$work/smolvm-system.tar" "$3"
    mv "$work/vm-system.tar" "$2"
    mv "$work/system.tar" "$1"
    echo "==> runner's system: built in ${SECONDS}s"
  fi
  exec 9>&-
}

# version: the version of the release, or the one in the sources.
version() { echo "${VERSION:-$(sed -n 's/^var version = "\(.*\)"/\1/p' "$root/pkg/project/project.go")}"; }

build_runner() {
  SECONDS=0
  echo "==> runner images: compiling the runner"
  progress runner env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$root" -trimpath -buildvcs=false \
    -ldflags "-s -w ${VERSION:+-X $project.version=$VERSION}" -o "$work/runner" ./runner
}

# build_runtime OUT: the layer with the programs of the runtime of SmolVMs, and with the kernel and initrd of its guests,
# which QEMU's user reads.
build_runtime() {
  local layer=$work/runtime
  for file in vmlinuz micro.cpio.gz; do
    [ -e "$guests/$file" ] || die "$guests/$file is missing: run integration/images/guestimage/build.sh $guests micro"
  done
  SECONDS=0
  echo "==> runtime image: compiling smolvm"
  umask 022 # the layer has the modes of its directories
  mkdir -p "$layer/usr/local/bin" "$layer/usr/share/smolvm" "$layer/opt/kvm-operator"
  progress smolvm env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$root" -trimpath -buildvcs=false \
    -ldflags "-s -w ${VERSION:+-X $project.version=$VERSION}" -o "$layer/usr/local/bin/smolvm" ./smolvm
  progress operator env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$root" -trimpath -buildvcs=false \
    -ldflags "-s -w ${VERSION:+-X $project.version=$VERSION}" -o "$layer/opt/kvm-operator/kvm-operator" .
  install -m 644 "$guests/vmlinuz" "$layer/usr/share/smolvm/vmlinuz"
  install -m 644 "$guests/micro.cpio.gz" "$layer/usr/share/smolvm/initrd"
  pack_layer "$layer" "$1"
}

# build_image TITLE NAME OUT FLAG... SYSTEM...: the layers from the lowest to the highest, on which the runner's comes.
build_image() {
  local title=$1 name=$2 out=$3
  shift 3
  unfinished=$out.$$
  progress "$title image" "$work/pack" -name "$name" -title "$title" -version "$(version)" -o "$unfinished" "$@"
  # Processes that watch the file only see changes.
  cmp -s "$unfinished" "$out" || mv "$unfinished" "$out"
  rm -f "$unfinished"
  echo "==> $(basename "$out"): built in ${SECONDS}s, $(du -h "$out" | cut -f1)"
}

[ $# = 1 ] || [ "$#-${2:-}" = 2-smolvm ] || die "usage: $0 DEST [smolvm]"
command -v go >/dev/null || die "go is not in PATH: see https://go.dev/doc/install"
mkdir -p "$cache" "$1"
dest=$(cd "$1" && pwd)
guests=${GUESTS:-$dest/guest}
# Unfinished files and their jobs are removed whenever this script ends.
job='' ticker='' unfinished=''
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'end "$ticker"; end "$job"; rm -rf --one-file-system "$work" "$unfinished"' EXIT
key=$(system_key)
system=$cache/system-$key.tar vm_system=$cache/vm-system-$key.tar smolvm_system=$cache/smolvm-system-$key.tar
build_system_once "$system" "$vm_system" "$smolvm_system"
go build -C "$here/pack" -o "$work/pack" .
registry=docker.io/kvm-operator/kvm-operator
if [ $# = 1 ]; then
  build_runner
  build_image "kvm-operator runner" "${RUNNER_IMAGE:-$registry-runner:$(version)}" "$dest/runner-image.tar" -runner "$work/runner" "$system"
  build_image "kvm-operator VM runner" "${VM_RUNNER_IMAGE:-$registry-vm-runner:$(version)}" "$dest/vm-runner-image.tar" -runner "$work/runner" -env CANARY_KERNEL=/usr/share/kvm-operator/vmlinuz "$system" "$vm_system"
fi
build_runtime "$work/runtime.tar"
build_image "kvm-operator SmolVM runtime" "${RUNTIME_IMAGE:-$registry-smolvm-runtime:$(version)}" "$dest/smolvm-runtime-image.tar" -command runtime "$system" "$smolvm_system" "$work/runtime.tar"
