#!/bin/sh
# Downloads one binary of Kubernetes to $DIRECTORY. It is used only when it has the published checksum.
set -eu

name=$1
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
	echo "no Kubernetes binaries for $(uname -m)" >&2
	exit 1
	;;
esac
url=$BASE_URL/$VERSION/bin/linux/$arch/$name

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
chmod 0755 "$scratch/file"
mv "$scratch/file" "$DIRECTORY/$name"
