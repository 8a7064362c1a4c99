package guestnet

import (
	"cmp"
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
)

// Config is the network configuration of a pod: one interface with everything that it loses when it becomes a port of a
// bridge.
type Config struct {
	// Interface is the name of the interface, usually eth0.
	Interface string `json:"interface"`
	// MAC is the pod's address on the link. CNI plugins, switches and neighbors know the pod by it.
	MAC MAC `json:"mac"`
	// MTU is in bytes, without the Ethernet header.
	MTU int `json:"mtu"`
	// Alias is the interface's ifalias; usually empty.
	Alias string `json:"alias,omitempty"`
	// AddressMode is how the kernel generates IPv6 link-local addresses, a value of the sysctl addr_gen_mode; nil if
	// the kernel has no IPv6.
	AddressMode *int `json:"addressMode,omitempty"`
	// Clsact says that the interface already had a clsact qdisc, which is not ours.
	Clsact bool `json:"clsact,omitempty"`
	// Addresses are in the kernel's order; the first global one of a family is the pod's address.
	Addresses []Address `json:"addresses"`
	// Routes are the unicast routes of all tables, including those that the kernel adds with an address, because some
	// CNI plugins remove these.
	Routes []Route `json:"routes"`
}

// Address is an address of an interface.
type Address struct {
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix `json:"prefix"`
	// Peer is the peer's address of a point-to-point address; usually invalid.
	Peer netip.Prefix `json:"peer,omitzero"`
	// Broadcast is an IPv4 subnet's broadcast address; invalid if there is none.
	Broadcast netip.Addr `json:"broadcast,omitzero"`
	// Label is an IPv4 address's label.
	Label string `json:"label,omitempty"`
	// Scope is an RT_SCOPE value: 0 is global, 253 is valid on the link only.
	Scope int `json:"scope,omitempty"`
	// NoPrefixRoute says that the kernel was asked to add no route for the subnet.
	NoPrefixRoute bool `json:"noPrefixRoute,omitempty"`
}

// Route is a unicast route through an interface. The numbers are those of rtnetlink(7).
type Route struct {
	// Destination has length 0 for a default route.
	Destination netip.Prefix `json:"destination"`
	// Gateway is invalid if the destination is on the link.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Source is the preferred source address; invalid if there is none.
	Source netip.Addr `json:"source,omitzero"`
	// Table is the routing table; 254 is the main table.
	Table int `json:"table"`
	// Protocol says what added the route: 2 is the kernel.
	Protocol int `json:"protocol"`
	// Scope is an RT_SCOPE value of an IPv4 route.
	Scope uint8 `json:"scope,omitempty"`
	// Priority is the metric; of two routes to a destination the one with the smaller metric is used.
	Priority int `json:"priority,omitempty"`
	// OnLink says that the gateway is reached directly, regardless of other routes.
	OnLink bool `json:"onLink,omitempty"`
	// MTU is that of the route in bytes; 0 means the interface's.
	MTU int `json:"mtu,omitempty"`
	// AdvMSS is the route's TCP segment size in bytes; 0 means that it follows from the MTU.
	AdvMSS int `json:"advMSS,omitempty"`
}

// MAC is an Ethernet address that is written 02:00:5e:10:00:01 in JSON.
type MAC net.HardwareAddr

func (m MAC) String() string { return net.HardwareAddr(m).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) error {
	parsed, err := net.ParseMAC(string(text))
	*m = MAC(parsed)
	return err
}

// derive derives another MAC of the same pod: locally administered, unicast, and the same at every start.
func (m MAC) derive(role string) MAC {
	sum := sha256.Sum256(append([]byte(role), m...))
	derived := MAC(sum[:6])
	derived[0] = derived[0]&^1 | 2
	return derived
}

// mainTable is RT_TABLE_MAIN.
const mainTable = 254

// global returns the addresses of a family by which others can reach the pod.
func (c Config) global(is func(netip.Addr) bool) []netip.Prefix {
	var addresses []netip.Prefix
	for _, address := range c.Addresses {
		if is(address.Prefix.Addr()) && address.Scope == 0 {
			addresses = append(addresses, address.Prefix)
		}
	}
	return addresses
}

// first returns the first address of a list; invalid if there is none.
func first(addresses []netip.Prefix) netip.Addr {
	if len(addresses) == 0 {
		return netip.Addr{}
	}
	return addresses[0].Addr()
}

// guestRoutes returns the routes of a family that matter to a guest: those of the main table, on-link routes first,
// then by preference.
func (c Config) guestRoutes(is func(netip.Addr) bool) []Route {
	var routes []Route
	for _, route := range c.Routes {
		if is(route.Destination.Addr()) && route.Table == mainTable && !route.Destination.Addr().IsLinkLocalUnicast() {
			routes = append(routes, route)
		}
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(order(a.Gateway.IsValid(), b.Gateway.IsValid()), cmp.Compare(a.Priority, b.Priority))
	})
	return routes
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// onLink reports whether all of an address's subnet is reached without a gateway. It is not if a CNI plugin removes the
// route to the subnet and adds one through the host instead.
func onLink(address netip.Prefix, routes []Route) bool {
	return slices.ContainsFunc(routes, func(r Route) bool {
		return !r.Gateway.IsValid() && r.Destination == address.Masked()
	})
}
