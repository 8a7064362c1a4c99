#!/bin/bash
# system.sh WORK MIRROR... — makes WORK/root, a Debian with the packages of `packages`, and WORK/libnbd, the Go module with
# the bindings of its libnbd: the version of it that KubeVirt names is on no proxy.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$1
shift
# Nothing runs inside of that Debian, so nothing of this machine is mounted there.
# shellcheck disable=SC2016 # mmdebstrap sets the variable for its hooks
TMPDIR=$work mmdebstrap --variant=extract --format=directory --include="$(grep -v '^#' "$here/packages" | paste -sd,)" \
  --skip=chroot/mount --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --aptopt='APT::Install-Recommends "false"' \
  --extract-hook="cd '$work' && "'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get source --download-only libnbd' \
  trixie "$work/root" "$@"
mkdir "$work/libnbd"
tar -C "$work/libnbd" --strip-components=2 --wildcards -xf "$work"/libnbd_*.orig.tar.?z '*/golang/*'
rm -rf "$work"/libnbd/*_test.go "$work/libnbd/examples" "$work/libnbd/configure"
# The bindings of libvirt have a function of the same name, and both are in one program.
sed -i 's/freeCallbackId/freeNbdCallbackId/g' "$work"/libnbd/*.go "$work"/libnbd/*.h
