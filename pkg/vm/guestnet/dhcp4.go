package guestnet

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// forever is an infinite lifetime of DHCP, DHCPv6 and neighbor discovery, in seconds.
const forever = 0xffffffff * time.Second

// optionClasslessRoutesMicrosoft is option 121 under the number that clients used before RFC 3442.
const optionClasslessRoutesMicrosoft = dhcpv4.GenericOptionCode(249)

// answerDHCP answers a datagram to the port of DHCP servers (RFC 2131). It answers only the guest.
func (s *server) answerDHCP(p packet, payload []byte) (packet, bool) {
	request, err := dhcpv4.FromBytes(payload)
	if err != nil || !s.isFromGuest(request) {
		return packet{}, false
	}
	reply := s.replyDHCP(request)
	if reply == nil {
		return packet{}, false
	}
	answer := packet{sourceMAC: s.own, targetMAC: p.sourceMAC, source: RunnerAddress, target: targetOf(reply, request), hopLimit: hopLimit}
	if answer.target == broadcast {
		answer.targetMAC = broadcastMAC
	}
	return answer.withUDP(datagram{sourcePort: portDHCPServer, targetPort: portDHCPClient, payload: reply.ToBytes()}), true
}

func (s *server) isFromGuest(request *dhcpv4.DHCPv4) bool {
	return s.lease != nil && request.OpCode == dhcpv4.OpcodeBootRequest && request.HWType == iana.HWTypeEthernet &&
		bytes.Equal(request.ClientHWAddr, s.guest) && request.GatewayIPAddr.IsUnspecified()
}

var (
	broadcast    = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// targetOf returns the destination of a reply: the address that the client has, otherwise the one that it gets, unless
// the client says that it cannot receive packets there yet (RFC 2131, 4.1).
func targetOf(reply, request *dhcpv4.DHCPv4) netip.Addr {
	switch {
	case reply.MessageType() == dhcpv4.MessageTypeNak:
		return broadcast
	case !request.ClientIPAddr.IsUnspecified():
		return addrOf(request.ClientIPAddr)
	case request.IsBroadcast() || reply.YourIPAddr.IsUnspecified():
		return broadcast
	default:
		return addrOf(reply.YourIPAddr)
	}
}

// replyDHCP returns the reply to a request of the guest; nil if there is none. The offered lease is always the same,
// even after a DECLINE, because the pod has no other address.
func (s *server) replyDHCP(request *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if id := request.ServerIdentifier(); id != nil && addrOf(id) != RunnerAddress {
		return nil
	}
	switch request.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return s.newReply(request, dhcpv4.MessageTypeOffer, s.withLease, s.withOptions(request))
	case dhcpv4.MessageTypeRequest:
		switch wanted := wantedAddress(request); {
		case !wanted.IsValid() || wanted.IsUnspecified():
			return nil
		case wanted != s.lease.address.Addr():
			return s.newReply(request, dhcpv4.MessageTypeNak)
		}
		return s.newReply(request, dhcpv4.MessageTypeAck, s.withLease, s.withOptions(request))
	case dhcpv4.MessageTypeInform:
		return s.newReply(request, dhcpv4.MessageTypeAck, s.withOptions(request))
	default:
		return nil
	}
}

// wantedAddress returns the address that a client requests, or has when it renews a lease.
func wantedAddress(request *dhcpv4.DHCPv4) netip.Addr {
	if wanted := request.RequestedIPAddress(); wanted != nil {
		return addrOf(wanted)
	}
	return addrOf(request.ClientIPAddr)
}

func (s *server) newReply(request *dhcpv4.DHCPv4, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	modifiers := append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(RunnerAddress.AsSlice())),
		dhcpv4.WithOptionCopied(request, dhcpv4.OptionClientIdentifier), // RFC 6842
	}, more...)
	reply, err := dhcpv4.NewReplyFromRequest(request, modifiers...)
	if err != nil {
		return nil
	}
	return reply
}

func (s *server) withLease(reply *dhcpv4.DHCPv4) {
	reply.YourIPAddr = s.lease.address.Addr().AsSlice()
	reply.UpdateOption(dhcpv4.OptIPAddressLeaseTime(forever))
}

func (s *server) withOptions(request *dhcpv4.DHCPv4) dhcpv4.Modifier {
	return func(reply *dhcpv4.DHCPv4) {
		s.addOptions(reply)
		asked := func(code dhcpv4.OptionCode) bool { return code.Code() == optionClasslessRoutesMicrosoft.Code() }
		if slices.ContainsFunc(request.ParameterRequestList(), asked) {
			reply.UpdateOption(dhcpv4.OptGeneric(optionClasslessRoutesMicrosoft, s.classlessRoutes().ToBytes()))
		}
	}
}

func (s *server) addOptions(reply *dhcpv4.DHCPv4) {
	reply.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(s.lease.address.Bits(), 32)))
	reply.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, s.mtu)))
	reply.UpdateOption(dhcpv4.OptClasslessStaticRoute(s.classlessRoutes()...))
	if s.lease.gateway.IsValid() {
		reply.UpdateOption(dhcpv4.OptRouter(s.lease.gateway.AsSlice()))
	}
	if s.hostname != "" {
		reply.UpdateOption(dhcpv4.OptHostName(s.hostname))
	}
	if servers := addressesIn(s.dns, netip.Addr.Is4); len(servers) != 0 {
		reply.UpdateOption(dhcpv4.OptDNS(servers...))
	}
	if len(s.search) != 0 {
		reply.UpdateOption(dhcpv4.OptDomainSearch(&rfc1035label.Labels{Labels: s.search}))
	}
	if servers := addressesIn(s.ntp, netip.Addr.Is4); len(servers) != 0 {
		reply.UpdateOption(dhcpv4.OptNTPServers(servers...))
	}
}

func (s *server) classlessRoutes() dhcpv4.Routes {
	var routes dhcpv4.Routes
	for _, route := range s.lease.routes {
		routes = append(routes, &dhcpv4.Route{Dest: ipNet(route.destination), Router: route.gateway.AsSlice()})
	}
	return routes
}

// addressesIn returns the addresses of a family.
func addressesIn(addresses []netip.Addr, is func(netip.Addr) bool) []net.IP {
	var ips []net.IP
	for _, address := range addresses {
		if is(address) {
			ips = append(ips, address.AsSlice())
		}
	}
	return ips
}
