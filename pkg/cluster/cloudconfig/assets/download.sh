#!/bin/sh
# Downloads what the image lacks: "download NAME" a binary of Kubernetes to $DIRECTORY, "download cni-plugins" the standard
# CNI plugins to $CNI_DIRECTORY. A file is used only when it has the published checksum.
set -eu

name=$1
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
	echo "no binaries for $(uname -m)" >&2
	exit 1
	;;
esac

# missing_plugins says that the image lacks a plugin that the product's own pod network or the container runtime calls.
missing_plugins() {
	for plugin in $CNI_PLUGINS; do
		[ -x "$CNI_DIRECTORY/$plugin" ] || return 0
	done
	return 1
}

if [ "$name" = cni-plugins ]; then
	missing_plugins || exit 0
	DIRECTORY=$CNI_DIRECTORY
	url=$CNI_URL/$CNI_VERSION/cni-plugins-linux-$arch-$CNI_VERSION.tgz
else
	url=$BASE_URL/$VERSION/bin/linux/$arch/$name
fi

mkdir -p "$DIRECTORY"
scratch=$(mktemp -d "$DIRECTORY/.download.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

get() {
	if command -v curl >/dev/null; then
		curl --fail --silent --show-error --location --connect-timeout 30 --output "$2" "$1"
	else
		wget --quiet --timeout=30 --output-document="$2" "$1"
	fi
}

download() {
	get "$url.sha256" "$scratch/sum" && get "$url" "$scratch/file" &&
		echo "$(cut -c1-64 "$scratch/sum")  $scratch/file" | sha256sum --check --status
}

# place moves a file into the directory in one step, so that a half-written program is never run.
place() {
	chmod 0755 "$1"
	mv "$1" "$DIRECTORY/${1##*/}"
}

# place_plugins unpacks the archive. A plugin that the image or a pod has put there stays.
place_plugins() {
	mkdir "$scratch/plugins"
	tar -xzf "$scratch/file" -C "$scratch/plugins"
	for plugin in "$scratch"/plugins/*; do
		if [ -f "$plugin" ] && [ -x "$plugin" ] && [ ! -e "$DIRECTORY/${plugin##*/}" ]; then
			place "$plugin"
		fi
	done
	if missing_plugins; then
		echo "$url does not contain all of: $CNI_PLUGINS" >&2
		exit 1
	fi
}

pause=1
until download; do
	if [ "$pause" -gt 64 ]; then
		echo "$url: giving up for now" >&2
		exit 1
	fi
	echo "$url: no file with the published checksum, next try in $pause s" >&2
	sleep "$pause"
	pause=$((pause * 2))
done
if [ "$name" = cni-plugins ]; then
	place_plugins
else
	mv "$scratch/file" "$scratch/$name"
	place "$scratch/$name"
fi
