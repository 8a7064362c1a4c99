#!/bin/bash
# build.sh DEST — builds the image of the operator without a container engine: DEST/operator-image.tar, an OCI archive for
# `ctr -n k8s.io images import`. It has the same files and settings as that of Dockerfile. The authorities that it trusts
# are those of this machine, from the package ca-certificates.
#
# The same sources and authorities result in the same bytes. VERSION is the version of a release, and IMAGE the name of the
# image.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
project=github.com/kvm-operator/kvm-operator/pkg/project
authorities=/etc/ssl/certs/ca-certificates.crt
# One fixed time for all files in the image, as in pack.
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C.UTF-8

die() { echo "error: $*" >&2; exit 1; }

[ $# = 1 ] || die "usage: $0 DEST"
command -v go >/dev/null || die "go is not in PATH: see https://go.dev/doc/install"
[ -e "$authorities" ] || die "$authorities is missing: install ca-certificates"
mkdir -p "$1"
dest=$(cd "$1" && pwd)
version=${VERSION:-$(sed -n 's/^var version = "\(.*\)"/\1/p' "$root/pkg/project/project.go")}
out=$dest/operator-image.tar
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work" "$out.$$"' EXIT
umask 022 # the layer has the modes of its directories
"$root/integration/progress.sh" "operator image: compiling" env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$root" -trimpath -buildvcs=false \
  -ldflags "-s -w ${VERSION:+-X $project.version=$VERSION}" -o "$work/kvm-operator" .
mkdir -p "$work/layer/etc/ssl/certs" "$work/layer/opt/kvm-operator"
# With this name, the program is the operator for Machines.
ln -s kvm-operator "$work/layer/opt/kvm-operator/kubevirt-operator"
install -m 644 "$authorities" "$work/layer$authorities"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work/layer" -cf "$work/layer.tar" .
go build -C "$here/../runnerimage/pack" -o "$work/pack" .
"$work/pack" -name "${IMAGE:-docker.io/kvm-operator/kvm-operator:$version}" -title kvm-operator -version "$version" -command daemon -user 1000:1000 \
  -runner "$work/kvm-operator" -o "$out.$$" "$work/layer.tar"
mv "$out.$$" "$out"
echo "==> operator-image.tar: $(du -h "$out" | cut -f1)"
