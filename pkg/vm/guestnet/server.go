package guestnet

import (
	"bytes"
	"net"
	"net/netip"

	"github.com/mdlayher/ndp"
)

// server answers the guest's requests about its network: DHCP, DHCPv6, router discovery and, for gateways behind an
// alias, neighbor discovery. It keeps no state between requests.
type server struct {
	guest, own net.HardwareAddr // MACs of the guest and of the answers
	mtu        uint16
	hostname   string
	dns, ntp   []netip.Addr
	search     []string

	lease      *lease // nil without IPv4 address
	addresses6 []netip.Addr
	onLink     []netip.Prefix
	routers    []router
}

func newServer(c Config, o Options) *server {
	s := &server{
		guest: net.HardwareAddr(c.MAC), own: net.HardwareAddr(c.MAC.derive(BridgeName)), mtu: length16(c.MTU), hostname: o.Hostname,
		dns: o.DNSServers, ntp: o.NTPServers, search: o.SearchDomains, onLink: onLinkPrefixes(c), routers: routersOf(c),
	}
	if l, ok := leaseOf(c); ok {
		s.lease = &l
	}
	for _, prefix := range c.global(netip.Addr.Is6) {
		s.addresses6 = append(s.addresses6, prefix.Addr())
	}
	return s
}

// translates reports whether the server needs to see frames from the network.
func (s *server) translates() bool {
	for _, r := range s.routers {
		if r.isAlias() {
			return true
		}
	}
	return false
}

// answers are the packets that result from a received one.
type answers struct{ toGuest, toNetwork []packet }

// fromGuest answers a frame of the guest. Frames of others and unknown frames get no answer.
func (s *server) fromGuest(frame []byte) answers {
	p, ok := parsePacket(frame)
	if !ok || !bytes.Equal(p.sourceMAC, s.guest) {
		return answers{}
	}
	if message, ok := p.parseNDP(); ok {
		return s.fromGuestNDP(message)
	}
	d, ok := p.parseUDP()
	if !ok {
		return answers{}
	}
	switch {
	case d.targetPort == portDHCPServer && p.source.Is4():
		return toGuest(s.answerDHCP(p, d.payload))
	case d.targetPort == portDHCPv6Server && p.source.Is6():
		return toGuest(s.answerDHCPv6(p, d.payload))
	default:
		return answers{}
	}
}

func toGuest(p packet, ok bool) answers {
	if !ok {
		return answers{}
	}
	return answers{toGuest: []packet{p}}
}

func (s *server) fromGuestNDP(message ndp.Message) answers {
	switch m := message.(type) {
	case *ndp.RouterSolicitation:
		return answers{toGuest: s.advertisements()}
	case *ndp.NeighborSolicitation:
		if p, ok := s.solicitGateway(m); ok {
			return answers{toNetwork: []packet{p}}
		}
	}
	return answers{}
}

// fromNetwork translates a frame from the network.
func (s *server) fromNetwork(frame []byte) answers {
	p, ok := parsePacket(frame)
	if !ok {
		return answers{}
	}
	message, ok := p.parseNDP()
	if !ok {
		return answers{}
	}
	advertisement, ok := message.(*ndp.NeighborAdvertisement)
	if !ok {
		return answers{}
	}
	return toGuest(s.advertiseAlias(p, advertisement))
}
