package guestnet

import (
	"net/netip"
	"slices"
)

// lease is what DHCP announces to a guest about IPv4.
type lease struct {
	// address has the length of the subnet in which the guest finds its neighbors, 32 if there are none.
	address netip.Prefix
	// gateway is the next hop of the default route; invalid if there is none.
	gateway netip.Addr
	// routes are in the order in which they can be added: the next hop of each is reached by those before it.
	routes []leaseRoute
}

// leaseRoute is a route of DHCP's option 121 (RFC 3442).
type leaseRoute struct {
	destination netip.Prefix
	// gateway is 0.0.0.0 if the destination is on the link.
	gateway netip.Addr
}

// leaseOf derives a lease from a pod's network. It returns false if the pod has no IPv4 address.
func leaseOf(c Config) (lease, bool) {
	addresses := c.global(netip.Addr.Is4)
	if len(addresses) == 0 {
		return lease{}, false
	}
	routes := c.guestRoutes(netip.Addr.Is4)
	l := lease{address: addresses[0]}
	if !onLink(l.address, routes) {
		l.address = netip.PrefixFrom(l.address.Addr(), l.address.Addr().BitLen())
	}
	l.addOnLink(netip.PrefixFrom(RunnerAddress, RunnerAddress.BitLen()))
	for _, route := range routes {
		if !route.Gateway.IsValid() {
			l.addOnLink(route.Destination)
			continue
		}
		if !l.reaches(route.Gateway) {
			l.addOnLink(netip.PrefixFrom(route.Gateway, route.Gateway.BitLen()))
		}
		l.add(leaseRoute{destination: route.Destination, gateway: route.Gateway})
		if route.Destination.Bits() == 0 && !l.gateway.IsValid() {
			l.gateway = route.Gateway
		}
	}
	return l, true
}

func (l *lease) addOnLink(destination netip.Prefix) {
	l.add(leaseRoute{destination: destination, gateway: netip.IPv4Unspecified()})
}

// add adds a route unless there is a preferred one to the same destination.
func (l *lease) add(route leaseRoute) {
	known := slices.ContainsFunc(l.routes, func(r leaseRoute) bool { return r.destination == route.destination })
	if !known && route.destination != l.address.Masked() {
		l.routes = append(l.routes, route)
	}
}

// reaches reports whether an address is on the link.
func (l *lease) reaches(address netip.Addr) bool {
	return l.address.Contains(address) || slices.ContainsFunc(l.routes, func(r leaseRoute) bool {
		return r.gateway.IsUnspecified() && r.destination.Contains(address)
	})
}
