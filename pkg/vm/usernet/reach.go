package usernet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reasons for a refusal that do not come from Options.Allow.
const (
	ownAddress      = "address of this host"
	loopbackAddress = "loopback address of this host"
	gatewayAddress  = "the gateway serves nothing there"
	tooMany         = "too many connections of the guest"
	noRoute         = "there is no route"
	closed          = "the network is closed"
)

// Outside allows what is outside the network namespace. It excludes loopback addresses, which are this process's own,
// and everything that is not the address of one host.
func Outside(to netip.AddrPort) (ok bool, reason string) {
	address := to.Addr()
	first := netip.AddrFrom4([4]byte{0, 255, 255, 255}) // "this network", RFC 1122
	last := netip.AddrFrom4([4]byte{223, 255, 255, 255})
	if address.Is4() && !address.IsLoopback() && first.Less(address) && !last.Less(address) && to.Port() != 0 {
		return true, ""
	}
	return false, "not an address of one host outside"
}

// refusal returns why the guest may not reach an address, or nothing. The gateway is this process, and the addresses
// of the namespace are the guest's own published ports. This is decided on the address that is dialed: the guest
// names no others.
func (n *Network) refusal(to netip.AddrPort) string {
	switch address := to.Addr(); {
	case n.context.Err() != nil:
		return closed
	case address == n.options.Gateway:
		return gatewayAddress
	case address.IsLoopback() && !n.options.loopback:
		return loopbackAddress
	case address == n.options.Address || n.local[address] && !n.options.ReachHost:
		return ownAddress
	}
	ok, reason := n.options.Allow(to)
	switch {
	case ok:
		return ""
	case reason == "":
		return "not allowed"
	}
	return reason
}

// misrouted returns why an address that is allowed is not dialed, or nothing. A host can get addresses after Open, so
// the kernel is asked where packets to this one would go.
func (n *Network) misrouted(to netip.AddrPort) string {
	if n.options.ReachHost || n.options.loopback {
		return ""
	}
	routes, err := netlink.RouteGet(to.Addr().AsSlice())
	switch {
	case err != nil || len(routes) == 0:
		return noRoute
	case routes[0].Type != unix.RTN_UNICAST: // local, broadcast or multicast
		return ownAddress
	}
	return ""
}

// refuse reports a refusal.
func (n *Network) refuse(protocol string, to netip.AddrPort, reason string) {
	if n.options.Refused != nil && reason != closed {
		n.options.Refused(protocol, to, reason)
	}
}

// findLocal finds the addresses that are not outside.
func (n *Network) findLocal() error {
	n.local = map[netip.Addr]bool{n.options.Address: true}
	if n.options.loopback {
		return nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("finding the addresses of the host: %w", err)
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		n.local[prefix.Addr()], n.local[lastOf(prefix)] = true, true
	}
	return nil
}

// lastOf returns the last address of an IPv4 subnet, which is its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])|uint32(1<<(32-p.Bits())-1))
	return netip.AddrFrom4(bytes)
}
