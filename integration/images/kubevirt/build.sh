#!/bin/bash
# build.sh DEST — builds KubeVirt without a container engine, from its module and Debian's packages:
#
#   kubevirt-node.tar      the image of virt-launcher and virt-handler, an OCI archive for `ctr -n k8s.io images import`
#   kubevirt-plane.tar     the image of virt-operator, virt-api and virt-controller
#   kubevirt-operator.yaml what is applied to install virt-operator, with the names of these images
#
# README.md says what is other than upstream. A first build takes ten minutes and more on two cores. It is cached by the
# content of its inputs in ${KVM_OPERATOR_CACHE:-~/.cache/kvm-operator}/kubevirt; to get newer Debian packages, remove that
# directory. Interrupting is safe at any time. It needs root. DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR name other mirrors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${KVM_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvm-operator}/kubevirt
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mirrors=(
  "deb $mirror trixie main" "deb $mirror trixie-updates main" "deb-src $mirror trixie main"
  "deb ${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security} trixie-security main"
)
products=(kubevirt-node.tar kubevirt-plane.tar kubevirt-operator.yaml)
# One fixed time for all files in the images, as in pack.
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C.UTF-8

die() { echo "error: $*" >&2; exit 1; }

# install_missing: the programs that the build calls.
install_missing() {
  local pair missing=()
  for pair in mmdebstrap=mmdebstrap setcap=libcap2-bin gcc=gcc pkg-config=pkg-config; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
  [ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
  [ ${#missing[@]} = 0 ] && return
  echo "==> installing ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"; } >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; die "${missing[*]} cannot be installed, see the lines above"; }
}

# step TEXT COMMAND...: runs the command, says every ten seconds that it still runs, and shows its output if it fails.
step() {
  local text=$1
  shift
  # shellcheck disable=SC2016 # for the inner shell
  "$here/../../progress.sh" "kubevirt: $text" bash -c 'exec "${@:2}" >"$1" 2>&1' - "$work/log" "$@" ||
    { tail -n 30 "$work/log" >&2; die "kubevirt: $text failed, see the lines above"; }
}

# image NAME TITLE FLAG... LAYER: an archive of an image.
image() { "$work/pack" -name "kubevirt.test/$1:$version" -title "$2" -version "$version" -o "$work/out/kubevirt-$1.tar" "${@:3}"; }

# layer DIRECTORY: its content as an uncompressed layer. The owners in it are those of the image.
layer() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --xattrs --xattrs-include=security.capability -C "$1" -cf "$1.tar" .
}

build() {
  local version source
  step "unpacking Debian's packages" "$here/system.sh" "$work" "${mirrors[@]}"
  cp -R "$here/programs" "$work/programs"
  mv "$work/libnbd" "$work/programs/"
  version=$(go -C "$work/programs" list -m -f '{{.Version}}' kubevirt.io/kubevirt)
  source=$(go -C "$work/programs" mod download -json kubevirt.io/kubevirt | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  step "compiling $version" "$here/compile.sh" "$work" "$version"
  step "making the images" "$here/rootfs.sh" "$work/root" "$work/node" "$source"
  layer "$work/root"
  umask 022 # the layer has the modes of its directories
  mkdir -p "$work/files/usr/bin" "$work/out"
  install -d -m 1777 "$work/files/tmp" # virt-api makes files there
  mv "$work"/plane/* "$work/files/usr/bin/"
  layer "$work/files"
  go -C "$here/../runnerimage/pack" build -o "$work/pack" .
  image node "KubeVirt's programs on nodes" "$work/root.tar"
  image plane "KubeVirt's control plane" -user 1001 "$work/files.tar"
  (cd "$work/programs" && CGO_ENABLED=0 go run . "$version" "kubevirt.test/plane:$version" "kubevirt.test/node:$version") >"$work/out/kubevirt-operator.yaml"
}

# key: a digest of everything that the images depend on.
key() {
  {
    (cd "$here" && cat packages virtqemud ./*.sh programs/go.mod programs/go.sum programs/*.go ../runnerimage/pack/*.go)
    go env GOVERSION
    printf '%s\n' "${mirrors[@]}"
  } | sha256sum | cut -c1-16
}

[ $# = 1 ] || die "usage: $0 DEST"
[ "$(id -u)" = 0 ] || die "the files of the images have several owners: run this as root"
command -v go >/dev/null || die "go is not in PATH: see https://go.dev/doc/install"
mkdir -p "$cache" "$1"
dest=$(cd "$1" && pwd)
made=$cache/$(key)
exec 9>"$cache/lock"
flock -n 9 || { echo "==> kubevirt: waiting for another build of it"; flock 9; }
if [ ! -e "$made" ]; then
  work=$(mktemp -d "$cache/work.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  SECONDS=0
  install_missing
  build
  mv "$work/out" "$made"
  echo "==> kubevirt: built in ${SECONDS}s"
fi
for product in "${products[@]}"; do ln -sfn "$made/$product" "$dest/$product"; done
