#!/bin/bash
# compile.sh WORK VERSION — compiles KubeVirt's programs from the module WORK/programs: into WORK/plane those of the control
# plane, which are static, and into WORK/node those of nodes, some of them against the libraries of the Debian WORK/root.
set -euo pipefail
work=$1 version=$2
root=$work/root kubevirt=kubevirt.io/kubevirt
cd "$work/programs"

# build DIRECTORY PROGRAM...
build() {
  local directory=$1
  shift
  GOTMPDIR=$work go build -trimpath -buildvcs=false -ldflags "-s -w -X kubevirt.io/client-go/version.gitVersion=$version" \
    -o "$directory/" "${@/#/$kubevirt/cmd/}"
}

CGO_ENABLED=0 build "$work/plane" virt-operator virt-api virt-controller virt-exportproxy
CGO_ENABLED=0 build "$work/node" virt-launcher-monitor virt-chroot virt-probe virt-tail virt-freezer virt-launcher/libvirt-hook-client
# pkg-config puts the sysroot before the paths that it finds below it.
CGO_ENABLED=1 CC="gcc --sysroot=$root" PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig \
  build "$work/node" virt-launcher virt-handler
gcc -static -O2 -o "$work/node/container-disk" "$(go list -m -f '{{.Dir}}' $kubevirt)/cmd/container-disk-v2alpha/main.c"
