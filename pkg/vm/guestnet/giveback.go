package guestnet

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// giveBackSteps restore the pod's own network from any state of a takeover.
func (n *Network) giveBackSteps() []step {
	return []step{
		{"remove the tap", func() error { return n.remove(TapName) }},
		{"remove the bridge", func() error { return n.remove(BridgeName) }},
		{"give the MAC back", n.giveMACBack},
		{"give the addresses back", n.giveAddressesBack},
		{"give the routes back", n.giveRoutesBack},
		{"remove the filter", n.removeFilter},
		{"remove the mark", n.removeMark}, // from here on the state file is not used
		{"remove the state", func() error { return removeState(n.stateFile) }},
	}
}

func (n *Network) remove(name string) error {
	link, err := n.handle.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	return n.handle.LinkDel(link)
}

func (n *Network) giveMACBack() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	return n.handle.LinkSetHardwareAddr(uplink, net.HardwareAddr(n.config.MAC))
}

func (n *Network) giveAddressesBack() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	present, err := addressesOf(n.handle, uplink)
	if err != nil {
		return err
	}
	for _, address := range addingOrder(n.config.Addresses) {
		if slices.Contains(present, address) {
			continue
		}
		if err := n.handle.AddrReplace(uplink, address.netlink()); err != nil {
			return fmt.Errorf("adding the address %s: %w", address.Prefix, err)
		}
	}
	if n.config.AddressMode == nil {
		return nil
	}
	return n.setAddressMode(uplink, *n.config.AddressMode)
}

// addingOrder returns the order in which addresses have to be added to be listed as they were: the kernel lists the
// last IPv6 address first.
func addingOrder(addresses []Address) []Address {
	var four, six []Address
	for _, address := range addresses {
		if address.Prefix.Addr().Is4() {
			four = append(four, address)
		} else {
			six = append([]Address{address}, six...)
		}
	}
	return append(four, six...)
}

// netlink returns the address for the kernel. Duplicate address detection is disabled, because the address was this
// pod's all the time.
func (a Address) netlink() *netlink.Addr {
	address := &netlink.Addr{IPNet: ipNet(a.Prefix), Label: a.Label, Scope: a.Scope, Broadcast: a.Broadcast.AsSlice()}
	if !a.Broadcast.IsValid() {
		address.Broadcast = net.IPv4zero // otherwise netlink chooses one
	}
	if a.Peer.IsValid() {
		address.Peer = ipNet(a.Peer)
	}
	if a.Prefix.Addr().Is6() {
		address.Flags |= unix.IFA_F_NODAD
	}
	if a.NoPrefixRoute {
		address.Flags |= unix.IFA_F_NOPREFIXROUTE
	}
	return address
}

// giveRoutesBack adds the routes that the kernel has not added with the addresses, and removes routes that the pod did
// not have.
func (n *Network) giveRoutesBack() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	if err := n.removeRoutes(uplink, n.config.Routes); err != nil {
		return err
	}
	present, err := routesOf(n.handle, uplink)
	if err != nil {
		return err
	}
	for _, route := range neighboursFirst(n.config.Routes) {
		if slices.Contains(present, route) {
			continue
		}
		if err := n.handle.RouteAdd(route.netlink(uplink.Attrs().Index)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the route to %s: %w", route.Destination, err)
		}
	}
	return nil
}

// neighboursFirst returns the order in which routes can be added: a gateway must be reachable before a route can use
// it.
func neighboursFirst(routes []Route) []Route {
	return slices.SortedStableFunc(slices.Values(routes), func(a, b Route) int {
		return order(a.Gateway.IsValid(), b.Gateway.IsValid())
	})
}

// removeRoutes removes the routes through a link, except those in keep.
func (n *Network) removeRoutes(link netlink.Link, keep []Route) error {
	present, err := routesOf(n.handle, link)
	if err != nil {
		return err
	}
	// Routes with gateways come first, because the kernel may remove them together with the routes to the gateways.
	present = neighboursFirst(present)
	for _, route := range slices.Backward(present) {
		if slices.Contains(keep, route) {
			continue
		}
		if err := n.handle.RouteDel(route.netlink(link.Attrs().Index)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing the route to %s: %w", route.Destination, err)
		}
	}
	return nil
}

func (n *Network) removeMark() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	return n.handle.LinkSetAlias(uplink, n.config.Alias)
}
