package guestnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// A guest may send only from its own addresses. Outgoing frames are checked against an allow-list: the pod's MAC, its
// IPv4 and IPv6 addresses as sources, ARP and neighbor discovery about these, and no other kind of frame. Networks rely
// on it: those that bridge the pods of a host learn addresses from ARP and neighbor discovery, and network policies by
// address trust the source.

// Offsets of further fields.
const (
	offsetARPHead       = 14 // hardware and protocol
	offsetARPLengths    = 18
	offsetARPOperation  = 20
	offsetARPSenderMAC  = 22
	offsetIPv6Extension = 54 // the first extension header: next header, length
	offsetIPv6Second    = 62 // what follows a first extension header of eight bytes
)

// IPv6 next headers.
const (
	nextHopByHop     = 0
	nextRouting      = 43
	nextFragment     = 44
	nextDestinations = 60
)

const typeRedirect = 137

// typesMulticastListener are the messages about groups (RFC 2710, RFC 3810): query, report, done, report of version 2.
// Hosts send the last three.
var typesMulticastListener = []uint32{131, 132, 143}

// leaving returns the program for outgoing frames of the guest: kept inside, forged, or its own. It first drops frames
// with a VLAN tag, which the kernel keeps separate from the frame.
func leaving(c Config) ([]bpf.RawInstruction, error) {
	return bpf.Assemble(append(untagged(), sources(c, actionDrop, actionContinue)...))
}

// untagged drops frames with a VLAN tag.
func untagged() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, bpf.RetConstant{Val: actionDrop},
	}
}

// sources drops frames that are kept inside, forged frames, and frames that are not from the guest's own addresses.
func sources(c Config, drop, pass uint32) []bpf.Instruction {
	var instructions []bpf.Instruction
	decide := func(verdict uint32, rules []rule) {
		for _, r := range rules {
			instructions = append(instructions, r.program(verdict)...)
		}
	}
	// The first rule that matches decides.
	decide(drop, keptInside())
	decide(pass, own4(c))
	decide(pass, advertisements(c))
	decide(pass, listeners(c))
	decide(drop, forged())
	decide(pass, own6(c))
	return append(instructions, bpf.RetConstant{Val: drop})
}

// own4 are the IPv4 frames that a guest sends from its own addresses.
func own4(c Config) []rule {
	var rules []rule
	for _, a := range c.own(netip.Addr.Is4) {
		rules = append(rules,
			isIPv4().and(address4(offsetIPv4Source, a)).and(sentBy(c.MAC)...),
			arpOf(c.MAC).and(address4(offsetARPSender, a)),
			// A probe asks whether another host has the address, before it is used (RFC 5227).
			arpOf(c.MAC).and(match{offset: offsetARPOperation, size: 2, value: 1}, address4(offsetARPSender, netip.IPv4Unspecified()), address4(offsetARPTarget, a)),
		)
	}
	return rules
}

// own6 are those of IPv6, once frames about other hosts have been dropped.
func own6(c Config) []rule {
	var rules []rule
	for _, a := range c.own6() {
		rules = append(rules,
			isIPv6().and(address6(offsetIPv6Source, a)...).and(sentBy(c.MAC)...),
			// This is duplicate address detection: it asks whether another host has the address (RFC 4862).
			icmp6(typeNeighborSolicitation).and(address6(offsetIPv6Source, netip.IPv6Unspecified())...).and(address6(offsetNDPTarget, a)...).and(sentBy(c.MAC)...),
		)
	}
	return rules
}

// advertisements are the neighbor advertisements in which the guest announces itself.
func advertisements(c Config) []rule {
	var rules []rule
	for _, source := range c.own6() {
		for _, target := range c.own6() {
			rules = append(rules, icmp6(typeNeighborAdvertisement).
				and(address6(offsetNDPTarget, target)...).and(address6(offsetIPv6Source, source)...).and(sentBy(c.MAC)...))
		}
	}
	return rules
}

// listeners are the messages about the groups to which a guest listens. Before it has an address, their source is
// unspecified.
func listeners(c Config) []rule {
	var rules []rule
	for _, source := range append(c.own6(), netip.IPv6Unspecified()) {
		for _, kind := range typesMulticastListener {
			rules = append(rules, listener(kind).and(address6(offsetIPv6Source, source)...).and(sentBy(c.MAC)...))
		}
	}
	return rules
}

// arpOf matches ARP for IPv4 over Ethernet in which a MAC announces itself.
func arpOf(mac MAC) rule {
	return isARP().and(
		match{offset: offsetARPHead, size: 4, value: 1<<16 | etherTypeIPv4}, match{offset: offsetARPLengths, size: 2, value: 6<<8 | 4},
		match{offset: offsetARPSenderMAC + 2, size: 4, value: binary.BigEndian.Uint32(mac[2:])},
		match{offset: offsetARPSenderMAC, size: 2, value: uint32(binary.BigEndian.Uint16(mac))},
	).and(sentBy(mac)...)
}

// listener matches messages about groups, which have a hop-by-hop header before them.
func listener(kind uint32) rule {
	return isIPv6().and(
		match{offset: offsetIPv6Next, size: 1, value: nextHopByHop},
		match{offset: offsetIPv6Extension, size: 2, value: protocolICMPv6 << 8},
		match{offset: offsetIPv6Second, size: 1, value: kind},
	)
}

// forged are the frames that are dropped although their source may be the guest's: neighbor discovery about other
// hosts, and extension headers before it that would hide it from these rules. Receivers skip such headers.
func forged() []rule {
	next := func(header uint32) match { return match{offset: offsetIPv6Next, size: 1, value: header} }
	first := func(header uint32) match { return match{offset: offsetIPv6Extension, size: 1, value: header} }
	rules := []rule{icmp6(typeNeighborAdvertisement), icmp6(typeRedirect)}
	for _, header := range []uint32{nextHopByHop, nextRouting, nextDestinations} {
		rules = append(rules, isIPv6().and(next(header)), isIPv6().and(next(nextFragment), first(header)))
	}
	// A fragment may not be part of neighbor discovery (RFC 6980).
	for _, kind := range []uint32{typeRouterSolicitation, typeRouterAdvertisement, typeNeighborSolicitation, typeNeighborAdvertisement, typeRedirect} {
		rules = append(rules, isIPv6().and(next(nextFragment), first(protocolICMPv6),
			match{offset: offsetIPv6Extension + 2, size: 2, mask: 0xfff8}, match{offset: offsetIPv6Second, size: 1, value: kind}))
	}
	return rules
}

// own returns the pod's addresses of a family.
func (c Config) own(is func(netip.Addr) bool) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range c.Addresses {
		if address := a.Prefix.Addr(); is(address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// own6 returns the pod's IPv6 addresses, including the link-local address that a guest derives from the MAC (RFC 4291,
// appendix A).
func (c Config) own6() []netip.Addr {
	link := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: c.MAC[0] ^ 2, 9: c.MAC[1], 10: c.MAC[2], 11: 0xff, 12: 0xfe, 13: c.MAC[3], 14: c.MAC[4], 15: c.MAC[5]})
	addresses := append(c.own(netip.Addr.Is6), link)
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}

// address6 matches an IPv6 address. It compares the last bytes first, because they differ most from those of other
// addresses.
func address6(offset uint32, address netip.Addr) []match {
	bytes := address.As16()
	var fields []match
	for _, at := range []uint32{12, 8, 4, 0} {
		fields = append(fields, match{offset: offset + at, size: 4, value: binary.BigEndian.Uint32(bytes[at:])})
	}
	return fields
}
