package guestnet

import (
	"cmp"
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
)

// Config is what a pod has of its network: one interface with everything that is lost when it goes into a bridge.
type Config struct {
	// Interface is the name of the interface, eth0 as a rule.
	Interface string `json:"interface"`
	// MAC is the pod's address on the link. CNI plugins, switches and neighbours know the pod by it.
	MAC MAC `json:"mac"`
	// MTU in bytes, without the Ethernet header.
	MTU int `json:"mtu"`
	// Alias is the interface's ifalias; mostly empty.
	Alias string `json:"alias,omitempty"`
	// AddressMode is how the kernel makes IPv6 link-local addresses, a value of the sysctl addr_gen_mode; nil where the
	// kernel has no IPv6.
	AddressMode *int `json:"addressMode,omitempty"`
	// Clsact says that the interface has had a clsact qdisc of somebody else's.
	Clsact bool `json:"clsact,omitempty"`
	// Addresses are in the kernel's order; the first global one of a family is the pod's address.
	Addresses []Address `json:"addresses"`
	// Routes are the unicast routes of all tables, also those that the kernel makes by itself with an address: some CNI
	// plugins remove these.
	Routes []Route `json:"routes"`
}

// Address is an address of an interface.
type Address struct {
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix `json:"prefix"`
	// Peer is the other end's address of a point-to-point address; invalid as a rule.
	Peer netip.Prefix `json:"peer,omitzero"`
	// Broadcast is an IPv4 subnet's broadcast address; invalid when there is none.
	Broadcast netip.Addr `json:"broadcast,omitzero"`
	// Label is an IPv4 address's label.
	Label string `json:"label,omitempty"`
	// Scope is an RT_SCOPE value: 0 is global, 253 is valid on the link only.
	Scope int `json:"scope,omitempty"`
	// NoPrefixRoute says that the kernel was told to make no route for the subnet.
	NoPrefixRoute bool `json:"noPrefixRoute,omitempty"`
}

// Route is a unicast route by an interface. The numbers are those of rtnetlink(7).
type Route struct {
	// Destination has length 0 for a default route.
	Destination netip.Prefix `json:"destination"`
	// Gateway is invalid when the destination is on the link.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Source is the preferred source address; invalid when there is none.
	Source netip.Addr `json:"source,omitzero"`
	// Table is the routing table, 254 the main one.
	Table int `json:"table"`
	// Protocol says who made the route: 2 is the kernel.
	Protocol int `json:"protocol"`
	// Scope is an RT_SCOPE value of an IPv4 route.
	Scope uint8 `json:"scope,omitempty"`
	// Priority is the metric; of two routes to a destination the one with the smaller is used.
	Priority int `json:"priority,omitempty"`
	// OnLink says that the gateway is reached directly, whatever other routes say.
	OnLink bool `json:"onLink,omitempty"`
	// MTU of the route in bytes; 0 is the interface's.
	MTU int `json:"mtu,omitempty"`
	// AdvMSS is the route's TCP segment size in bytes; 0 follows from the MTU.
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

// derive makes a MAC for something else of the same pod: locally administered, unicast, and the same at every start.
func (m MAC) derive(role string) MAC {
	sum := sha256.Sum256(append([]byte(role), m...))
	derived := MAC(sum[:6])
	derived[0] = derived[0]&^1 | 2
	return derived
}

// mainTable is RT_TABLE_MAIN.
const mainTable = 254

// global lists the addresses of a family that others can reach the pod by.
func (c Config) global(is func(netip.Addr) bool) []netip.Prefix {
	var addresses []netip.Prefix
	for _, address := range c.Addresses {
		if is(address.Prefix.Addr()) && address.Scope == 0 {
			addresses = append(addresses, address.Prefix)
		}
	}
	return addresses
}

// first is the first address of a list; invalid when there is none.
func first(addresses []netip.Prefix) netip.Addr {
	if len(addresses) == 0 {
		return netip.Addr{}
	}
	return addresses[0].Addr()
}

// guestRoutes are the routes of a family that matter to a guest: those of the main table, what is on the link first and
// otherwise the preferred first.
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

// onLink says whether all of an address's subnet is reached without a gateway. It is not with CNI plugins that remove
// the route to the subnet and add one by the host instead.
func onLink(address netip.Prefix, routes []Route) bool {
	return slices.ContainsFunc(routes, func(r Route) bool {
		return !r.Gateway.IsValid() && r.Destination == address.Masked()
	})
}
