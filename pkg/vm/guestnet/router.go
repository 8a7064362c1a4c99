package guestnet

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"
)

// Types of ICMPv6 messages (RFC 4861).
const (
	typeRouterSolicitation    = 133
	typeRouterAdvertisement   = 134
	typeNeighborSolicitation  = 135
	typeNeighborAdvertisement = 136
)

const (
	// advertisementInterval is the time between unsolicited advertisements, and routerLifetime how long a guest uses a
	// router without hearing of it: the greatest values of RFC 4861, 6.2.1, with many advertisements in one lifetime.
	advertisementInterval = 10 * time.Minute
	routerLifetime        = 9000 * time.Second
)

// router is a gateway of the pod as the guest sees it.
type router struct {
	// address is the link-local address by which the guest knows the router. It is the gateway itself if that is
	// link-local. Otherwise it is an alias, because guests accept advertisements only from link-local addresses, and
	// that of the gateway is unknown. The server answers for the alias, see neighbor.go.
	address netip.Addr
	// gateway is the gateway's address in the pod's routes; invalid if there is none.
	gateway netip.Addr
	// isDefault says that it is the next hop of a default route.
	isDefault bool
	// routes are the other destinations behind it.
	routes []netip.Prefix
}

// routersOf returns the gateways of a pod's IPv6 routes, each once. A pod without gateways gets an entry that is not a
// router, so that the guest still gets the advice to request an address.
func routersOf(c Config) []router {
	var routers []router
	alias := RunnerAddress6
	for _, route := range c.guestRoutes(netip.Addr.Is6) {
		if !route.Gateway.IsValid() {
			continue
		}
		i := slices.IndexFunc(routers, func(r router) bool { return r.gateway == route.Gateway })
		if i < 0 {
			i = len(routers)
			routers = append(routers, router{gateway: route.Gateway, address: route.Gateway})
			if !route.Gateway.IsLinkLocalUnicast() {
				alias = alias.Next()
				routers[i].address = alias
			}
		}
		if route.Destination.Bits() == 0 {
			routers[i].isDefault = true
		} else {
			routers[i].routes = append(routers[i].routes, route.Destination)
		}
	}
	if len(routers) == 0 {
		routers = []router{{address: RunnerAddress6}}
	}
	return routers
}

// onLinkPrefixes returns the IPv6 networks that a pod reaches without a gateway.
func onLinkPrefixes(c Config) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, route := range c.guestRoutes(netip.Addr.Is6) {
		isItself := slices.ContainsFunc(c.Addresses, func(a Address) bool {
			return route.Destination == netip.PrefixFrom(a.Prefix.Addr(), 128)
		})
		if !route.Gateway.IsValid() && !isItself && !slices.Contains(prefixes, route.Destination) {
			prefixes = append(prefixes, route.Destination)
		}
	}
	return prefixes
}

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// advertisements returns the router advertisements for the guest, one of each router. There are none for a pod without
// an IPv6 address.
func (s *server) advertisements() []packet {
	if len(s.addresses6) == 0 {
		return nil
	}
	var packets []packet
	for _, r := range s.routers {
		p := packet{sourceMAC: s.own, targetMAC: allNodesMAC, source: r.address, target: allNodes}
		if p, ok := p.withNDP(s.advertisement(r)); ok {
			packets = append(packets, p)
		}
	}
	return packets
}

// advertisement tells the guest to request its addresses by DHCPv6 and not to generate any.
func (s *server) advertisement(r router) *ndp.RouterAdvertisement {
	ra := &ndp.RouterAdvertisement{CurrentHopLimit: hopLimit, ManagedConfiguration: true, OtherConfiguration: true}
	if r.isDefault {
		ra.RouterLifetime = routerLifetime
	}
	ra.Options = append(ra.Options, ndp.NewMTU(uint32(s.mtu)))
	for _, prefix := range s.onLink {
		ra.Options = append(ra.Options, &ndp.PrefixInformation{
			PrefixLength: bits(prefix), Prefix: prefix.Addr(), OnLink: true,
			ValidLifetime: forever, PreferredLifetime: forever,
		})
	}
	for _, prefix := range r.routes {
		ra.Options = append(ra.Options, &ndp.RouteInformation{
			PrefixLength: bits(prefix), Prefix: prefix.Addr(), RouteLifetime: routerLifetime,
		})
	}
	if servers := only6(s.dns); len(servers) != 0 {
		ra.Options = append(ra.Options, &ndp.RecursiveDNSServer{Lifetime: routerLifetime, Servers: servers})
	}
	if len(s.search) != 0 {
		ra.Options = append(ra.Options, &ndp.DNSSearchList{Lifetime: routerLifetime, DomainNames: s.search})
	}
	return ra
}

func bits(prefix netip.Prefix) uint8 { return uint8(prefix.Bits()) } //nolint:gosec // G115: 128 at most

func only6(addresses []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addresses), netip.Addr.Is4)
}

// withNDP returns the packet with a neighbor discovery message in it.
func (p packet) withNDP(message ndp.Message) (packet, bool) {
	payload, err := ndp.MarshalMessageChecksum(message, p.source, p.target)
	p.protocol, p.hopLimit, p.payload = protocolICMPv6, hopLimitOnLink, payload
	return p, err == nil
}

// parseNDP parses the neighbor discovery message of a packet.
func (p packet) parseNDP() (ndp.Message, bool) {
	if p.protocol != protocolICMPv6 || p.hopLimit != hopLimitOnLink {
		return nil, false
	}
	message, err := ndp.ParseMessage(p.payload)
	return message, err == nil
}
