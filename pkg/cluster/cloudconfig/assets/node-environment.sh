#!/bin/sh
# Writes what is known only after boot to $RUNTIME_DIRECTORY. Runs on every boot and leaves the same result.
set -eu

run=$RUNTIME_DIRECTORY

# source_address FAMILY prints the address by which packets leave through the default route. The probed addresses are
# those reserved for documentation: the routing table is asked, nothing is sent.
source_address() {
	case $1 in
	4) probe=192.0.2.1 ;;
	6) probe=2001:db8::1 ;;
	esac
	ip -o "-$1" route get "$probe" 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p'
}

address=
tries=0
while [ -z "$address" ]; do
	for family in $FAMILIES; do
		address=$(source_address "$family")
		if [ -n "$address" ]; then
			break
		fi
	done
	if [ -n "$address" ]; then
		break
	fi
	tries=$((tries + 1))
	if [ "$tries" -ge 60 ]; then
		echo "no default route after $tries seconds" >&2
		exit 1
	fi
	sleep 1
done

# A label holds no colon, and ends with a letter or digit.
label=$(echo "$address" | sed -e 's/::$/::0/' -e 's/^::/0::/' -e 's/:/-/g')
printf 'NODE_IP=%s\nNODE_IP_LABEL=%s\n' "$address" "$label" >"$run/node.env.new"
mv "$run/node.env.new" "$run/node.env"

# Pods cannot use the stub on 127.0.0.53 that /etc/resolv.conf names where systemd-resolved runs, or will run.
resolv=/etc/resolv.conf
case $(readlink /etc/resolv.conf || true) in
*/systemd/resolve/*) resolv=/run/systemd/resolve/resolv.conf ;;
esac
if [ -e /run/systemd/resolve/resolv.conf ]; then
	resolv=/run/systemd/resolve/resolv.conf
fi
ln -sfn "$resolv" "$run/resolv.conf"

# containerd knows one directory of CNI plugins, images have others.
mkdir -p "$CNI_DIRECTORY"
for plugin in /usr/lib/cni/* /usr/libexec/cni/*; do
	name=${plugin##*/}
	if [ -x "$plugin" ] && [ ! -e "$CNI_DIRECTORY/$name" ]; then
		ln -sfn "$plugin" "$CNI_DIRECTORY/$name"
	fi
done
