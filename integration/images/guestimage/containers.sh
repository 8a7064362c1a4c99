#!/bin/bash
# containers.sh ROOT PROGRAMS — puts the container images of a node's own pods and of add-ons into the root file system
# ROOT:
#
#   /usr/share/guest-images/layer       the one layer that all share, unpacked; its large files are ROOT's own
#   /usr/share/guest-images/images.tar  their manifests and configurations for `ctr images import` (OCI layout)
#   /usr/share/guest-images/chain       the name under which containerd looks for the unpacked layer
#   /usr/share/guest-images/names       their names, one a line: those that boot data and manifests use by default
#
# PROGRAMS is a directory with pause, busybox, and the programs of the add-ons with the list of their images
# (../addons/images).
#
# An emulated machine needs a minute to import a layer of this size. So the layer is not imported:
# /usr/libexec/guest-images shows containerd the unpacked one.
set -euo pipefail
root=$1 programs=$2
out=$root/usr/share/guest-images
registry=registry.k8s.io
# The tag of the sandbox image in kubeadm 1.34 to 1.36 and in the boot data.
pause_tag=3.10.1
kubernetes=$(chroot "$root" /usr/bin/kubeall kube-apiserver --version)
kubernetes=${kubernetes#Kubernetes }
etcd=$(chroot "$root" /usr/bin/kubeall etcd --version | sed -n 's/^etcd Version: //p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archive DIRECTORY: a tar that only depends on the directory's content.
archive() { tar --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" --owner=0 --group=0 --numeric-owner -C "$1" -c .; }

digest() { sha256sum | cut -c1-64; }

# copy_linked PROGRAM...: programs of ROOT and the libraries that they are linked against.
copy_linked() {
  local file
  for file in "$@" $(chroot "$root" ldd "$@" | grep -oE '/[^ :]+ ' | sort -u); do
    mkdir -p "$out/layer$(dirname "$file")"
    cp -L "$root$file" "$out/layer$file"
  done
}

# addons: the lines of the list of images: name, program in the image, tool.
addons() { grep -v '^#' "$programs/images"; }

# make_layer: a directory with everything that the programs need. Kubernetes' binary is a hard link, so one copy of it
# in the guest's memory serves kubelet and pods.
make_layer() {
  local name path layer=$out/layer
  mkdir -p "$layer"/{etc/ssl/certs,tmp,usr/bin,usr/sbin,usr/lib/x86_64-linux-gnu}
  ln -s usr/bin usr/lib usr/sbin "$layer/"
  chmod 1777 "$layer/tmp"
  install -m 755 "$programs/pause" "$layer/pause"
  ln "$root/usr/bin/kubeall" "$layer/usr/bin/kubeall"
  for name in etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-proxy kube-scheduler; do ln -s kubeall "$layer/usr/bin/$name"; done
  addons | while read -r _ path name; do install -D -m 755 "$programs/$name" "$layer$path"; done
  # Init containers copy files, and users need a shell for `kubectl exec`.
  install -m 755 "$programs/busybox" "$layer/usr/bin/busybox"
  "$programs/busybox" --list | while read -r name; do [ -e "$layer/usr/bin/$name" ] || ln -s busybox "$layer/usr/bin/$name"; done
  # An API server contacts issuers of tokens over TLS.
  cp "$root/etc/ssl/certs/ca-certificates.crt" "$layer/etc/ssl/certs/"
  # kube-proxy and flannel call these.
  copy_linked /usr/sbin/nft /usr/sbin/xtables-nft-multi /usr/sbin/conntrack
  cp -a "$root/usr/lib/x86_64-linux-gnu/xtables" "$layer/usr/lib/x86_64-linux-gnu/"
  for name in iptables ip6tables; do
    ln -s xtables-nft-multi "$layer/usr/sbin/$name"
    ln -s xtables-nft-multi "$layer/usr/sbin/$name-save"
    ln -s xtables-nft-multi "$layer/usr/sbin/$name-restore"
  done
}

# blob: stores standard input under its digest in the archive of the images, and prints digest and size for a
# descriptor.
blob() {
  local sum
  cat >"$work/blob"
  sum=$(digest <"$work/blob")
  printf '"digest":"sha256:%s","size":%d' "$sum" "$(stat -c %s "$work/blob")"
  mv "$work/blob" "$work/oci/blobs/sha256/$sum"
}

# image NAME PROGRAM: adds an image of the layer.
image() {
  local type=application/vnd.oci.image config manifest
  config=$(printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["%s"],"Env":["PATH=/usr/sbin:/usr/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$2" "$chain" | blob)
  manifest=$(printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json",%s},"layers":[{"mediaType":"%s.layer.v1.tar","digest":"sha256:%s","size":%d}]}' \
    $type $type "$config" $type "$chain" "$size" | blob)
  printf '{"mediaType":"%s.manifest.v1+json",%s,"annotations":{"io.containerd.image.name":"%s"}}\n' $type "$manifest" "$1" >>"$work/index"
  echo "$1" >>"$out/names"
}

make_layer
archive "$out/layer" >"$work/layer"
# The name of a chain with one layer is the layer's digest.
chain=$(digest <"$work/layer")
size=$(stat -c %s "$work/layer")
echo "sha256:$chain" >"$out/chain"

mkdir -p "$work/oci/blobs/sha256"
image "$registry/pause:$pause_tag" /pause
image "$registry/etcd:$etcd-0" /usr/bin/etcd
for component in kube-apiserver kube-controller-manager kube-proxy kube-scheduler; do
  image "$registry/$component:$kubernetes" "/usr/bin/$component"
done
while read -r name path _; do image "$name" "$path"; done < <(addons)
printf '{"schemaVersion":2,"manifests":[%s]}' "$(paste -sd, "$work/index")" >"$work/oci/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
archive "$work/oci" >"$out/images.tar"
