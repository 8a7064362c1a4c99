package guestnet

import (
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// answerDHCPv6 answers a datagram to the port of DHCPv6 servers (RFC 8415).
func (s *server) answerDHCPv6(p packet, payload []byte) (packet, bool) {
	request, err := dhcpv6.MessageFromBytes(payload)
	if err != nil || len(s.addresses6) == 0 || !p.source.IsLinkLocalUnicast() {
		return packet{}, false
	}
	reply := s.replyDHCPv6(request)
	if reply == nil {
		return packet{}, false
	}
	answer := packet{sourceMAC: s.own, targetMAC: p.sourceMAC, source: RunnerAddress6, target: p.source, hopLimit: hopLimit}
	return answer.withUDP(datagram{sourcePort: portDHCPv6Server, targetPort: portDHCPv6Client, payload: reply.ToBytes()}), true
}

// replyDHCPv6 returns the reply to a message of the guest; nil if there is none. As with IPv4, the reply always offers
// the same.
func (s *server) replyDHCPv6(request *dhcpv6.Message) *dhcpv6.Message {
	if !s.isForServer(request) {
		return nil
	}
	switch kind := request.Type(); kind {
	case dhcpv6.MessageTypeSolicit:
		if request.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			return s.newReply6(request, dhcpv6.MessageTypeAdvertise, s.identitiesFor(request)...)
		}
		return s.newReply6(request, dhcpv6.MessageTypeReply, append(s.identitiesFor(request), rapidCommit())...)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		return s.newReply6(request, dhcpv6.MessageTypeReply, s.identitiesFor(request)...)
	case dhcpv6.MessageTypeConfirm:
		return s.newReply6(request, dhcpv6.MessageTypeReply, status(s.confirm(request)))
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		return s.newReply6(request, dhcpv6.MessageTypeReply, status(iana.StatusSuccess))
	case dhcpv6.MessageTypeInformationRequest:
		return s.newReply6(request, dhcpv6.MessageTypeReply)
	default:
		return nil
	}
}

// isForServer checks the identifiers that a message must or must not have (RFC 8415, 16).
func (s *server) isForServer(request *dhcpv6.Message) bool {
	id := request.Options.ServerID()
	if id != nil && !id.Equal(s.duid()) {
		return false
	}
	hasClient := request.Options.ClientID() != nil
	switch request.Type() {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		return hasClient && id == nil
	case dhcpv6.MessageTypeInformationRequest:
		return true
	default:
		return hasClient && id != nil
	}
}

func (s *server) newReply6(request *dhcpv6.Message, kind dhcpv6.MessageType, options ...dhcpv6.Option) *dhcpv6.Message {
	reply := &dhcpv6.Message{MessageType: kind, TransactionID: request.TransactionID}
	if client := request.Options.ClientID(); client != nil {
		reply.AddOption(dhcpv6.OptClientID(client))
	}
	reply.AddOption(dhcpv6.OptServerID(s.duid()))
	for _, option := range options {
		reply.AddOption(option)
	}
	if servers := addressesIn(s.dns, netip.Addr.Is6); len(servers) != 0 {
		reply.AddOption(dhcpv6.OptDNS(servers...))
	}
	if len(s.search) != 0 {
		reply.AddOption(dhcpv6.OptDomainSearchList(&rfc1035label.Labels{Labels: s.search}))
	}
	if servers := addressesIn(s.ntp, netip.Addr.Is6); len(servers) != 0 {
		reply.AddOption(ntpServers(servers))
	}
	return reply
}

func (s *server) duid() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: s.own}
}

// identitiesFor gives the pod's addresses to the first identity that requests them. Other identities and prefixes get
// none. An address that the guest has from elsewhere is withdrawn.
func (s *server) identitiesFor(request *dhcpv6.Message) []dhcpv6.Option {
	var options []dhcpv6.Option
	for i, asked := range request.Options.IANA() {
		identity := &dhcpv6.OptIANA{IaId: asked.IaId, T1: forever, T2: forever}
		if i == 0 {
			s.give(identity, asked)
		} else {
			identity.Options.Add(status(iana.StatusNoAddrsAvail))
		}
		options = append(options, identity)
	}
	for _, asked := range request.Options.IAPD() {
		identity := &dhcpv6.OptIAPD{IaId: asked.IaId}
		identity.Options.Add(status(iana.StatusNoPrefixAvail))
		options = append(options, identity)
	}
	return options
}

func (s *server) give(identity, asked *dhcpv6.OptIANA) {
	for _, address := range s.addresses6 {
		identity.Options.Add(&dhcpv6.OptIAAddress{
			IPv6Addr: address.AsSlice(), PreferredLifetime: forever, ValidLifetime: forever,
		})
	}
	for _, other := range asked.Options.Addresses() {
		if !slices.Contains(s.addresses6, addrOf(other.IPv6Addr)) {
			identity.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: other.IPv6Addr})
		}
	}
}

// confirm reports whether the addresses that a guest remembers are still those of the pod.
func (s *server) confirm(request *dhcpv6.Message) iana.StatusCode {
	for _, identity := range request.Options.IANA() {
		for _, address := range identity.Options.Addresses() {
			if !slices.Contains(s.addresses6, addrOf(address.IPv6Addr)) {
				return iana.StatusNotOnLink
			}
		}
	}
	return iana.StatusSuccess
}

func status(code iana.StatusCode) dhcpv6.Option { return &dhcpv6.OptStatusCode{StatusCode: code} }

func rapidCommit() dhcpv6.Option {
	return &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
}

func ntpServers(servers []net.IP) dhcpv6.Option {
	option := &dhcpv6.OptNTPServer{}
	for _, server := range servers {
		address := dhcpv6.NTPSuboptionSrvAddr(server)
		option.Suboptions.Add(&address)
	}
	return option
}
