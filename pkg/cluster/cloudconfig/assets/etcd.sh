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
cluster=$(cat "$DATA.cluster" 2>/dev/null || true)
# note FILE TEXT: the file is as it was, or has the text.
note() {
	echo "$2" >"$1.new"
	sync "$1.new"
	mv "$1.new" "$1"
}
# What counts is the rename: until then the data is where it was, and all else is done again.
put_aside() {
	case $cluster in
	"" | "$CLUSTER") aside=$DATA.past ;;
	*) aside=$DATA.of-$cluster ;;
	esac
	echo "etcd: the data is that of a member that was taken out, or of another cluster; it is put aside, to $aside" >&2
	rm -rf "$aside"
	mkdir "$aside"
	note "$aside/ticket" "$made_with"
	mv "$DATA" "$aside/data"
}
take_back() {
	if [ -e "$DATA" ]; then
		put_aside
	fi
	echo "etcd: the data of this cluster was put aside by another one of its id; the member begins with it" >&2
	note "$DATA.ticket" "$(cat "$DATA.of-$CLUSTER/ticket")"
	note "$DATA.cluster" "$CLUSTER"
	mv "$DATA.of-$CLUSTER/data" "$DATA"
	rm -rf "$DATA.of-$CLUSTER"
	cluster=$CLUSTER
}
case $TICKET in
founding*)
	# Founders find data of their own cluster that was made with another ticket only where the cluster was made anew.
	if [ -d "$DATA.of-$CLUSTER/data/member" ] && { [ ! -d "$DATA/member" ] || [ "$cluster" != "$CLUSTER" ]; }; then
		take_back
		TICKET=
	elif [ -d "$DATA/member" ] && [ "$TICKET" != "$made_with" ] && [ "$cluster" = "$CLUSTER" ]; then
		echo "etcd: the data is that of a member of this cluster, which was made anew; the member begins with it" >&2
		TICKET=
	fi
	;;
esac
if [ -d "$DATA/member" ] && [ -n "$TICKET" ] && [ "$TICKET" != "$made_with" ]; then
	put_aside
fi
if [ ! -d "$DATA/member" ]; then
	if [ -z "$TICKET" ]; then
		echo "etcd: this master's member has run before, and its data is gone. It does not begin. Replace the master by one with another id" >&2
		exit 1
	fi
	note "$DATA.ticket" "$TICKET"
fi
if [ "$cluster" != "$CLUSTER" ]; then
	note "$DATA.cluster" "$CLUSTER"
fi
# etcd makes the directory for itself alone; what was put there by others may be open. That is no reason not to begin.
if [ -d "$DATA" ]; then
	chmod 0700 "$DATA" || echo "etcd: $DATA stays readable for others" >&2
fi
# The kubelet reads a file as soon as it sees it: whole or not at all.
cp -p "$MANIFEST" "$MANIFESTS/.etcd.yaml"
mv "$MANIFESTS/.etcd.yaml" "$MANIFESTS/etcd.yaml"
