#!/bin/bash
# build.sh DEST — builds the image of node pods without a container engine: DEST/runner-image.tar, an OCI archive for
# `ctr -n k8s.io images import`. It has the same files and settings as that of runner/Dockerfile.
#
# Its system, QEMU with libraries from Debian packages, is cached by the content of its inputs in
# ${KVM_OPERATOR_CACHE:-~/.cache/kvm-operator}/runnerimage. To get newer Debian packages, remove that directory. Only
# the runner's layer is built each time. A lock lets two checkouts build at the same time. Interrupting is safe at any
# time: nothing half-built is ever left in DEST.
#
# The same packages and sources result in the same bytes. VERSION is the version of a release, and RUNNER_IMAGE the name
# of the image. DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR name other mirrors.
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

# build_system OUT: the layer with everything except the runner. Nothing runs inside of that Debian, so nothing of this
# machine is mounted there. An interrupt could leave such a mount behind, and the cleanup would delete files in it.
build_system() {
  local packages
  packages=$(grep -v '^#' "$here/packages" | paste -sd,)
  command -v mmdebstrap >/dev/null || install_packages mmdebstrap
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || install_packages debian-archive-keyring
  progress "runner's system" env TMPDIR="$work" mmdebstrap --variant=extract --include="$packages" \
    --skip=chroot/mount --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --aptopt='APT::Install-Recommends "false"' \
    --extract-hook="'$here/register.sh' \"\$1\"" --extract-hook="'$here/rootfs.sh' \"\$1\" \"\$1/image\"" \
    --extract-hook="sync-out /image '$work/image'" trixie /dev/null "${mirrors[@]}"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work/image" -cf "$1" .
}

# system_key: a digest of everything that the system depends on.
system_key() {
  {
    cat "$here/packages" "$here/register.sh" "$here/rootfs.sh"
    declare -f build_system
    printf '%s\n' "$SOURCE_DATE_EPOCH" "${mirrors[@]}"
  } | sha256sum | cut -c1-16
}

# build_system_once FILE: builds the system if it is missing. A second caller waits for the first.
build_system_once() {
  exec 9>"$cache/system.lock"
  flock -n 9 || { echo "==> runner's system: waiting for another build of it"; flock 9; }
  if [ ! -e "$1" ]; then
    SECONDS=0
    echo "==> runner's system: building"
    build_system "$work/system.tar"
    mv "$work/system.tar" "$1"
    echo "==> runner's system: built in ${SECONDS}s"
  fi
  exec 9>&-
}

# version: the version of the release, or the one in the sources.
version() { echo "${VERSION:-$(sed -n 's/^var version = "\(.*\)"/\1/p' "$root/pkg/project/project.go")}"; }

# build_image SYSTEM OUT
build_image() {
  SECONDS=0
  echo "==> runner image: compiling the runner"
  progress runner env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$root" -trimpath -buildvcs=false \
    -ldflags "-s -w ${VERSION:+-X $project.version=$VERSION}" -o "$work/runner" ./runner
  unfinished=$2.$$
  progress "runner image" go run -C "$here/pack" . -name "${RUNNER_IMAGE:-docker.io/kvm-operator/kvm-operator-runner:$(version)}" \
    -version "$(version)" -system "$1" -runner "$work/runner" -o "$unfinished"
  # Processes that watch the file only see changes.
  cmp -s "$unfinished" "$2" || mv "$unfinished" "$2"
  echo "==> runner image: built in ${SECONDS}s, $(du -h "$2" | cut -f1)"
}

[ $# = 1 ] || die "usage: $0 DEST"
command -v go >/dev/null || die "go is not in PATH: see https://go.dev/doc/install"
mkdir -p "$cache" "$1"
dest=$(cd "$1" && pwd)
# Unfinished files and their jobs are removed whenever this script ends.
job='' ticker='' unfinished=''
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'end "$ticker"; end "$job"; rm -rf --one-file-system "$work" "$unfinished"' EXIT
system=$cache/system-$(system_key).tar
build_system_once "$system"
build_image "$system" "$dest/runner-image.tar"
