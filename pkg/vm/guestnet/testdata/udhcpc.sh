#!/bin/sh
# What a DHCP client does with a lease, in the words of udhcpc: it calls this with the event and the lease as environment.
set -e
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip address replace "$ip/$mask" dev "$interface"
ip link set "$interface" mtu "$mtu"
set -- $staticroutes # destination, gateway, destination, gateway, ...
while [ $# -gt 0 ]; do
	if [ "$2" = 0.0.0.0 ]; then
		ip route replace "$1" dev "$interface" scope link
	else
		ip route replace "$1" via "$2" dev "$interface"
	fi
	shift 2
done
echo "hostname $hostname dns $dns ntp $ntpsrv router $router lease $lease server $serverid"
