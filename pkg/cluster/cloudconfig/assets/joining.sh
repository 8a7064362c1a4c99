#!/bin/sh
# Says on the console, whose end the operator shows, what keeps the kubelet from joining: its last complaint, whenever that is
# another one. It ends once the kubelet has its kubeconfig.
set -eu

said=
while [ ! -e "$KUBECONFIG" ]; do
	# Lines of klog: severity, date, time and place, and then the words.
	words=$(journalctl --unit=k8s-kubelet.service --boot --lines=200 --output=cat --no-pager | grep '^[EF][0-9]' | tail -n 1 | sed 's/^[^]]*] //' | cut -c 1-500) || words=
	if [ -n "$words" ] && [ "$words" != "$said" ]; then
		echo "the kubelet has not joined; its clock says $(date -u '+%F %T'): $words"
		said=$words
	fi
	sleep "$EVERY"
done
