#!/bin/sh
# Has the kubelet run this master's member of etcd, unless its data is lost: a member that begins with an empty disk under the
# number of one that has run breaks what that one promised to the others. A ticket is the right to begin with an empty disk.
# Another ticket than the one that the data was made with means that another member was added in the place of that one, or
# that it is another cluster's.
set -eu

# Founders of a time without tickets have left no note.
case $TICKET in
founding*) made_with=$TICKET ;;
*) made_with=founding ;;
esac
if [ -e "$DATA.ticket" ]; then
	made_with=$(cat "$DATA.ticket")
fi
case $TICKET in
restored*)
	# The data of a snapshot is put there while the machine is down. Nothing else will do.
	if [ ! -d "$DATA/member" ] || [ "$TICKET" != "$made_with" ]; then
		echo "etcd: this master's data is not that of the snapshot that was restored. Its member does not begin. Restore it again, or replace the master by one with another id" >&2
		exit 1
	fi
	;;
esac
# Founders never find data of their own cluster that was made with another ticket, unless the cluster was made anew beside it.
case $TICKET in
founding*)
	if [ -d "$DATA/member" ] && [ "$TICKET" != "$made_with" ] && [ "$(cat "$DATA.cluster" 2>/dev/null)" = "$CLUSTER" ]; then
		echo "etcd: the data is that of a member of this cluster, which was made anew; the member begins with it" >&2
		TICKET=
	fi
	;;
esac
if [ -d "$DATA/member" ] && [ -n "$TICKET" ] && [ "$TICKET" != "$made_with" ]; then
	echo "etcd: the data is that of a member that was taken out, or of another cluster; it is put aside" >&2
	rm -rf "$DATA.past"
	mv "$DATA" "$DATA.past"
fi
if [ ! -d "$DATA/member" ]; then
	if [ -z "$TICKET" ]; then
		echo "etcd: this master's member has run before, and its data is gone. It does not begin. Replace the master by one with another id" >&2
		exit 1
	fi
	echo "$TICKET" >"$DATA.ticket.new"
	sync "$DATA.ticket.new"
	mv "$DATA.ticket.new" "$DATA.ticket"
fi
if [ "$(cat "$DATA.cluster" 2>/dev/null)" != "$CLUSTER" ]; then
	echo "$CLUSTER" >"$DATA.cluster.new"
	sync "$DATA.cluster.new"
	mv "$DATA.cluster.new" "$DATA.cluster"
fi
# The kubelet reads a file as soon as it sees it: whole or not at all.
cp -p "$MANIFEST" "$MANIFESTS/.etcd.yaml"
mv "$MANIFESTS/.etcd.yaml" "$MANIFESTS/etcd.yaml"
