#!/bin/bash
# build.sh DEST TOOL... — builds the heavy tools that tests and the demo need and links them into DEST.
#
#   kubeall   etcd, etcdctl, etcdutl, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet and
#             kubectl in one binary
#   kubeall-next
#             the same for the next minor version of Kubernetes, for upgrades of a workload cluster (tools/kubeall/next.mod)
#   kwok      simulated nodes
#   ignition  checks rendered boot data (needs a C compiler and libblkid-dev, installed by apt when missing)
#   helm      checks the chart
#   vault     a Vault server that issues certificates, for tests
#   coredns, flannel, flannel-cni, web
#             the programs in the container images of a workload cluster's add-ons (images/addons/images)
#   cni-plugins
#             the archive of the standard CNI plugins that nodes download when their image has none
#   containerd
#             containerd, its shim and ctr for guest images: Debian 12's takes minutes to notice that a container has ended
#   kubevirt  KubeVirt's virt-api and virt-controller in one program, and the manifests that they need
#   codegen   controller-gen, which derives deep copies and CRDs from the API types
#   lint      golangci-lint
#   viewer    no binary: installs a SPICE client, for tests of displays
#   programs  no binary: installs missing Debian packages of the programs for tests of machines (QEMU, ip, ping, …)
#
# Each binary is cached by the content of its module in ${KVM_OPERATOR_CACHE:-~/.cache/kvm-operator}, so a second
# checkout or a second run costs nothing. A lock lets two checkouts build at the same time. Interrupting is safe at any
# time: nothing half-built is ever linked, and Go's build cache keeps what has been compiled.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${KVM_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvm-operator}/bin

die() { echo "error: $*" >&2; exit 1; }

# module_version MODULE: the version of MODULE that the tool's go.mod selects.
module_version() { go list -m -f '{{.Version}}' "$1"; }

# Two packages hold the versions that servers report and that clients name in their user agent.
kubeall_ldflags() {
  local version major minor flags="-s -w" package
  version=$(module_version k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=$version -X $package.buildDate=1970-01-01T00:00:00Z"
  done
  echo "$flags"
}

# Ignition judges a config against a bare directory here, not against a machine. So there is no SELinux policy to
# relabel by, and the kernel command line of the test machine must not name another config.
ignition_ldflags() {
  local package=github.com/coreos/ignition/v2/internal
  echo "-s -w -X $package/version.Raw=$(module_version github.com/coreos/ignition/v2)" \
    "-X $package/distro.selinuxRelabel=false -X $package/distro.kernelCmdlinePath=/dev/null"
}

# compile NAME OUT PACKAGE LDFLAGS: runs go build with a line of progress every five seconds.
compile() {
  local total build
  # These are not local because the exit trap needs them.
  target=$2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo "==> $1: fetching modules and counting packages"
  total=$(go list -deps "$3" 2>"$work/log" | wc -l) || { cat "$work/log" >&2; die "the packages of $1 cannot be listed"; }
  echo "==> $1: compiling up to $total packages (a cold build takes minutes, later ones are cached)"
  # Job control gives go a process group, so that an interrupt ends it together with its compilers. The lock is closed
  # for them, so that none of them can hold it after this script.
  set -m
  GOTMPDIR=$work go build -v -trimpath -buildvcs=false -ldflags "$4" -o "$2" "$3" 2>"$work/log" 9>&- &
  build=$!
  set +m
  trap 'kill -- -"$build" 2>/dev/null && wait "$build" || true; rm -rf "$work" "$target"' EXIT
  while kill -0 "$build" 2>/dev/null; do
    sleep 5 9>&- & wait $! || true
    if kill -0 "$build" 2>/dev/null; then echo "    $1: $(wc -l <"$work/log")/$total packages"; fi
  done
  if ! wait "$build"; then
    tail -20 "$work/log" >&2
    die "building $1 failed, see the lines above"
  fi
  trap - EXIT
  rm -rf "$work"
  echo "==> $1: built in ${SECONDS}s"
}

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

# install_programs: the programs that machines and their tests run.
install_programs() {
  local pair missing=()
  for pair in qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils ip=iproute2 ping=iputils-ping mkfs.ext4=e2fsprogs busybox=busybox-static \
    nsenter=util-linux nft=nftables containerd=containerd ctr=containerd runc=runc conntrack=conntrack \
    mount=mount iptables=iptables host-local=containernetworking-plugins; do
    PATH=$PATH:/usr/sbin:/sbin:/usr/lib/cni command -v "${pair%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

install_viewer() {
  command -v spicy-screenshot >/dev/null || install_packages spice-client-gtk
}

build_kubeall() { CGO_ENABLED=0 compile kubeall "$1" . "$(kubeall_ldflags)"; }
# It is the same program with other module versions.
build_kubeall-next() (
  export GOFLAGS=-modfile=next.mod
  CGO_ENABLED=0 compile kubeall-next "$1" . "$(kubeall_ldflags)"
)
build_kwok() { CGO_ENABLED=0 compile kwok "$1" sigs.k8s.io/kwok/cmd/kwok "-s -w"; }
build_ignition() {
  local missing=()
  command -v gcc >/dev/null || missing+=(gcc libc6-dev)
  [ -e /usr/include/blkid/blkid.h ] || missing+=(libblkid-dev)
  command -v pkg-config >/dev/null || missing+=(pkg-config)
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
  compile ignition "$1" github.com/coreos/ignition/v2/internal "$(ignition_ldflags)"
}

# Without these versions helm assumes Kubernetes 1.20 for every cluster and rejects the chart.
helm_ldflags() {
  local minor package flags="-s -w -X helm.sh/helm/v3/internal/version.version=$(module_version helm.sh/helm/v3)"
  IFS=. read -r _ minor _ <<<"$(module_version k8s.io/client-go)"
  for package in pkg/lint/rules pkg/chartutil; do
    flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
  done
  echo "$flags"
}
build_helm() { CGO_ENABLED=0 compile helm "$1" helm.sh/helm/v3/cmd/helm "$(helm_ldflags)"; }

build_coredns() { CGO_ENABLED=0 compile coredns "$1" ./coredns "-s -w"; }
flannel_ldflags() {
  echo "-s -w -X github.com/flannel-io/flannel/pkg/version.Version=$(module_version github.com/flannel-io/flannel)"
}
build_flannel() { CGO_ENABLED=0 compile flannel "$1" ./flannel "$(flannel_ldflags)"; }
build_flannel-cni() { CGO_ENABLED=0 compile flannel-cni "$1" ./flannel-cni "-s -w"; }
build_web() { CGO_ENABLED=0 compile web "$1" . "-s -w"; }

# build_cni-plugins: the archive as upstream publishes it.
build_cni-plugins() {
  local package=github.com/containernetworking/plugins/plugins
  target=$1
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo "==> cni-plugins: compiling"
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/" \
    $package/main/bridge $package/main/loopback $package/ipam/host-local $package/meta/portmap
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -czf "$target" .
  chmod +x "$target" # a finished build is recognized by this bit
}

# build_containerd: a directory with the programs. The kubelet wants to know their version.
build_containerd() {
  local package=github.com/containerd/containerd/v2
  echo "==> containerd: compiling (a cold build takes two minutes)"
  mkdir -p "$1"
  CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$1/" -ldflags "-s -w -X $package/version.Version=$(module_version $package)" \
    $package/cmd/containerd $package/cmd/containerd-shim-runc-v2 $package/cmd/ctr
  echo "==> containerd: built in ${SECONDS}s"
}


# build_kubevirt: a directory with the program and its manifests, because each start of the program takes it seconds.
build_kubevirt() {
  rm -rf "$1"
  mkdir -p "$1"
  CGO_ENABLED=0 compile kubevirt "$1/kubevirt" . "-s -w"
  "$1/kubevirt" manifests >"$1/kubevirt-manifests.yaml"
}

build_vault() { CGO_ENABLED=0 compile vault "$1" . "-s -w"; }
build_codegen() { CGO_ENABLED=0 compile codegen "$1" sigs.k8s.io/controller-tools/cmd/controller-gen "-s -w"; }
build_lint() { CGO_ENABLED=0 compile lint "$1" github.com/golangci/golangci-lint/v2/cmd/golangci-lint "-s -w"; }

# directory TOOL: where the tool is built. Add-ons share one module, so shared dependencies are compiled once.
directory() {
  case $1 in
    coredns | flannel | flannel-cni) echo "$here/images/addons/programs" ;;
    web) echo "$here/images/addons/web" ;;
    kubeall-next) echo "$here/tools/kubeall" ;;
    *) echo "$here/tools/$1" ;;
  esac
}

# key TOOL: a digest of everything that the tool's binary depends on. The working directory is the tool's.
key() {
  {
    [ "$1" != kubeall-next ] || cat next.mod next.sum
    find . \( -name '*.go' ! -name '*_test.go' -o -name go.mod -o -name go.sum \) -print0 | sort -z | xargs -0 cat
    go env GOVERSION GOARCH
    declare -f "build_$1" "$1_ldflags" || true
  } | sha256sum | cut -c1-16
}

# build_once TOOL BINARY: builds the tool if it is missing. A second caller waits for the first.
build_once() (
  flock -n 9 || { echo "==> $1: waiting for another build of it"; flock 9; }
  [ ! -x "$2" ] || exit 0
  SECONDS=0
  "build_$1" "$2.new"
  mv "$2.new" "$2"
) 9>"$cache/$1.lock"

link() {
  local tool=$1 binary=$2 name names=("$1")
  case $tool in
    kubeall-next) names=(kubeall) ;;
    kubeall) names+=(etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet) ;;
    codegen) names=(controller-gen) ;;
    lint) names=(golangci-lint) ;;
    containerd | kubevirt)
      for name in "$binary"/*; do ln -sfn "$name" "$dest/${name##*/}"; done
      return
      ;;
  esac
  for name in "${names[@]}"; do
    ln -sfn "$binary" "$dest/$name"
  done
}

tools="kubeall, kubeall-next, kwok, ignition, helm, vault, kubevirt, coredns, flannel, flannel-cni, web, cni-plugins, containerd, codegen, lint, programs, viewer"
[ $# -ge 2 ] || die "usage: $0 DEST TOOL...   (tools: $tools)"
command -v go >/dev/null || die "go is not in PATH: see https://go.dev/doc/install"
dest=$1
shift
mkdir -p "$cache" "$dest"
dest=$(cd "$dest" && pwd)
for tool in "$@"; do
  if [ "$tool" = programs ] || [ "$tool" = viewer ]; then
    "install_$tool"
    continue
  fi
  declare -F "build_$tool" >/dev/null || die "there is no tool $tool (there are: $tools)"
  cd "$(directory "$tool")"
  binary=$cache/$tool-$(key "$tool")
  build_once "$tool" "$binary"
  link "$tool" "$binary"
done
