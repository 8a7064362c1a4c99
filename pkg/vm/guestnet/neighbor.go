package guestnet

import (
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/ndp"
)

// When a guest looks for the alias of a gateway (see router), the gateway itself answers: the guest's solicitation is
// changed into one for the gateway's real address, and the advertisement that comes back into one for the alias. So the
// guest learns the gateway's MAC, sees it change, and notices when the gateway is gone; no state is kept here.

// solicitGateway translates the guest's solicitation for an alias into one for the network.
func (s *server) solicitGateway(solicitation *ndp.NeighborSolicitation) (packet, bool) {
	i := slices.IndexFunc(s.routers, func(r router) bool { return r.isAlias() && r.address == solicitation.TargetAddress })
	if i < 0 || len(s.addresses6) == 0 {
		return packet{}, false
	}
	gateway := s.routers[i].gateway
	group, err := ndp.SolicitedNodeMulticast(gateway)
	if err != nil {
		return packet{}, false
	}
	p := packet{sourceMAC: s.guest, targetMAC: multicastMAC(group), source: s.addresses6[0], target: group}
	return p.withNDP(&ndp.NeighborSolicitation{
		TargetAddress: gateway,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.guest}},
	})
}

// advertiseAlias translates a gateway's advertisement into one for the guest.
func (s *server) advertiseAlias(p packet, advertisement *ndp.NeighborAdvertisement) (packet, bool) {
	i := slices.IndexFunc(s.routers, func(r router) bool { return r.isAlias() && r.gateway == advertisement.TargetAddress })
	if i < 0 {
		return packet{}, false
	}
	alias := s.routers[i].address
	answer := packet{sourceMAC: s.own, targetMAC: s.guest, source: alias, target: p.target}
	if p.target.IsMulticast() {
		answer.targetMAC = multicastMAC(p.target)
	}
	return answer.withNDP(&ndp.NeighborAdvertisement{
		// Without the flag the guest would remove the router from its list.
		Router: true, Solicited: advertisement.Solicited, Override: advertisement.Override, TargetAddress: alias,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: linkLayerAddress(p, advertisement)}},
	})
}

func (r router) isAlias() bool { return r.gateway.IsValid() && r.address != r.gateway }

// linkLayerAddress returns the MAC in an advertisement; without an option for it, that of its sender.
func linkLayerAddress(p packet, advertisement *ndp.NeighborAdvertisement) net.HardwareAddr {
	for _, option := range advertisement.Options {
		if address, ok := option.(*ndp.LinkLayerAddress); ok && address.Direction == ndp.Target && len(address.Addr) == 6 {
			return address.Addr
		}
	}
	return p.sourceMAC
}

// multicastMAC returns the Ethernet address of an IPv6 group (RFC 2464, 7).
func multicastMAC(group netip.Addr) net.HardwareAddr {
	bytes := group.As16()
	return net.HardwareAddr{0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]}
}
