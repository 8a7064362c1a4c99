package guestnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routesOf lists the unicast routes through a link, in all tables except the one for local addresses.
func routesOf(handle *netlink.Handle, link netlink.Link) ([]Route, error) {
	var routes []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		listed, err := listRoutes(handle, family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range listed {
			if !leadsBy(r, link.Attrs().Index) || r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST {
				continue
			}
			route, err := routeOf(r)
			if err != nil {
				return nil, err
			}
			routes = append(routes, route)
		}
	}
	return routes, nil
}

func listRoutes(handle *netlink.Handle, family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	routes, err := retry(func() ([]netlink.Route, error) { return handle.RouteListFiltered(family, filter, mask) })
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return routes, nil
}

func leadsBy(r netlink.Route, index int) bool {
	return r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool {
		return hop.LinkIndex == index
	})
}

func routeOf(r netlink.Route) (Route, error) {
	if len(r.MultiPath) != 0 || r.Encap != nil || r.Via != nil {
		return Route{}, fmt.Errorf("route %s with several next hops, an encapsulation or a gateway of the other family: %w", r, ErrUnsupported)
	}
	route := Route{
		Destination: prefixOf(r.Dst), Gateway: addrOf(r.Gw), Source: addrOf(r.Src), Table: r.Table, Protocol: int(r.Protocol),
		Scope: uint8(r.Scope), Priority: r.Priority, OnLink: r.Flags&unix.RTNH_F_ONLINK != 0, MTU: r.MTU, AdvMSS: r.AdvMSS,
	}
	if r.Dst == nil {
		route.Destination = everywhere(r.Family)
	}
	return route, nil
}

func everywhere(family int) netip.Prefix {
	if family == netlink.FAMILY_V4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// netlink returns the route for the kernel.
func (r Route) netlink(index int) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: index, Dst: ipNet(r.Destination), Gw: r.Gateway.AsSlice(), Src: r.Source.AsSlice(), Table: r.Table,
		Protocol: netlink.RouteProtocol(r.Protocol), Scope: netlink.Scope(r.Scope), Priority: r.Priority, MTU: r.MTU,
		AdvMSS: r.AdvMSS, Type: unix.RTN_UNICAST,
	}
	if r.OnLink {
		route.Flags = unix.RTNH_F_ONLINK
	}
	return route
}
