package guestnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// match is a field of an Ethernet frame with the value it must have. Fields are big-endian; a frame that is too short
// for one of the fields does not match.
type match struct {
	offset uint32
	size   int    // 1, 2 or 4 bytes
	value  uint32 // of the field's bits in mask
	mask   uint32 // 0 stands for all bits
}

// rule matches frames that all its fields match.
type rule []match

// Offsets of fields in frames without VLAN tag and, after the Ethernet header, without options.
const (
	offsetSourceMAC   = 6
	offsetEtherType   = 12
	offsetIPv4Length  = 14
	offsetIPv4Protect = 20 // flags and fragment offset
	offsetIPv4Proto   = 23
	offsetIPv4Source  = 26
	offsetIPv4Target  = 30
	offsetIPv4Ports   = 34
	offsetARPSender   = 28
	offsetARPTarget   = 38
	offsetIPv6Next    = 20
	offsetIPv6Source  = 22
	offsetIPv6Target  = 38
	offsetIPv6Payload = 54
	offsetNDPTarget   = 62
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd

	protocolUDP    = 17
	protocolICMPv6 = 58
)

func isARP() rule  { return rule{{offset: offsetEtherType, size: 2, value: etherTypeARP}} }
func isIPv4() rule { return rule{{offset: offsetEtherType, size: 2, value: etherTypeIPv4}} }
func isIPv6() rule { return rule{{offset: offsetEtherType, size: 2, value: etherTypeIPv6}} }

// and returns a rule for frames that match both rules.
func (r rule) and(more ...match) rule { return append(r[:len(r):len(r)], more...) }

// address4 matches an IPv4 address.
func address4(offset uint32, address netip.Addr) match {
	bytes := address.As4()
	return match{offset: offset, size: 4, value: binary.BigEndian.Uint32(bytes[:])}
}

// linkOfRunner matches the IPv6 addresses of linkPrefix.
func linkOfRunner(offset uint32) []match {
	bytes := linkPrefix.Addr().As16()
	return []match{
		// The last bytes of the prefix differ most from those of other addresses.
		{offset: offset + 12, size: 2, value: uint32(binary.BigEndian.Uint16(bytes[12:]))},
		{offset: offset, size: 4, value: binary.BigEndian.Uint32(bytes[:])},
		{offset: offset + 4, size: 4, value: binary.BigEndian.Uint32(bytes[4:])},
		{offset: offset + 8, size: 4, value: binary.BigEndian.Uint32(bytes[8:])},
	}
}

// sentBy matches the frames with a source MAC.
func sentBy(mac MAC) rule {
	return rule{
		{offset: offsetSourceMAC + 2, size: 4, value: binary.BigEndian.Uint32(mac[2:])},
		{offset: offsetSourceMAC, size: 2, value: uint32(binary.BigEndian.Uint16(mac))},
	}
}

// udp4 matches datagrams to a DHCP port: without IP options, and not a later fragment.
func udp4(port uint32) rule {
	return isIPv4().and(
		match{offset: offsetIPv4Proto, size: 1, value: protocolUDP},
		match{offset: offsetIPv4Ports + 2, size: 2, value: port},
		match{offset: offsetIPv4Length, size: 1, value: 0x45},
		match{offset: offsetIPv4Protect, size: 2, mask: 0x1fff},
	)
}

func udp6(port uint32) rule {
	return isIPv6().and(
		match{offset: offsetIPv6Next, size: 1, value: protocolUDP},
		match{offset: offsetIPv6Payload + 2, size: 2, value: port},
	)
}

func icmp6(kind uint32) rule {
	return isIPv6().and(
		match{offset: offsetIPv6Next, size: 1, value: protocolICMPv6},
		match{offset: offsetIPv6Payload, size: 1, value: kind},
	)
}

// keptInside are the frames that must not pass between the pod and the network, in either direction: those between
// runner and guest, whose addresses are the same in every pod, and host configuration, which is the runner's task here.
func keptInside() []rule {
	return []rule{
		isARP().and(address4(offsetARPSender, RunnerAddress)),
		isARP().and(address4(offsetARPTarget, RunnerAddress)),
		isIPv4().and(address4(offsetIPv4Source, RunnerAddress)),
		isIPv4().and(address4(offsetIPv4Target, RunnerAddress)),
		udp4(portDHCPServer),
		udp4(portDHCPClient),
		isIPv6().and(linkOfRunner(offsetIPv6Source)...),
		isIPv6().and(linkOfRunner(offsetIPv6Target)...),
		udp6(portDHCPv6Server),
		udp6(portDHCPv6Client),
		icmp6(typeRouterSolicitation),
		icmp6(typeRouterAdvertisement),
		icmp6(typeNeighborSolicitation).and(linkOfRunner(offsetNDPTarget)...),
		icmp6(typeNeighborAdvertisement).and(linkOfRunner(offsetNDPTarget)...),
	}
}

// keptOutside are the frames that must not come in: those of keptInside and the guest's own frames, which a bridge in
// hairpin mode sends back. The guest would take them for frames of another host with its addresses.
func keptOutside(guest MAC) []rule { return append([]rule{sentBy(guest)}, keptInside()...) }

// forServer are the frames from the guest that the server handles.
func forServer() []rule {
	return []rule{
		udp4(portDHCPServer),
		udp6(portDHCPv6Server),
		icmp6(typeRouterSolicitation),
		icmp6(typeNeighborSolicitation).and(linkOfRunner(offsetNDPTarget)...),
	}
}

// forTranslator are the frames from the network that the server handles.
func forTranslator() []rule { return []rule{icmp6(typeNeighborAdvertisement)} }

// assemble returns a program in classic BPF that returns hit for frames that one of the rules matches, and miss for
// others.
func assemble(rules []rule, hit, miss uint32) ([]bpf.RawInstruction, error) {
	return bpf.Assemble(program(rules, hit, miss))
}

func program(rules []rule, hit, miss uint32) []bpf.Instruction {
	var instructions []bpf.Instruction
	for _, r := range rules {
		instructions = append(instructions, r.program(hit)...)
	}
	return append(instructions, bpf.RetConstant{Val: miss})
}

func (r rule) program(hit uint32) []bpf.Instruction {
	instructions := []bpf.Instruction{bpf.RetConstant{Val: hit}}
	// It goes from the last field to the first, because a jump past the rule must know how much of it follows.
	for _, m := range slices.Backward(r) {
		jump := bpf.JumpIf{Cond: bpf.JumpEqual, Val: m.value}
		jump.SkipFalse = uint8(len(instructions)) //nolint:gosec // G115: no rule has more than two dozen fields
		field := []bpf.Instruction{bpf.LoadAbsolute{Off: m.offset, Size: m.size}}
		if m.mask != 0 {
			field = append(field, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: m.mask})
		}
		instructions = append(append(field, jump), instructions...)
	}
	// A program that reads past the end of a frame ends there, and the frame would pass.
	enough := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: r.reaches(), SkipFalse: uint8(len(instructions))} //nolint:gosec // G115: see above
	return append([]bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtLen}, enough}, instructions...)
}

// reaches returns how long a frame must be to contain all fields.
func (r rule) reaches() uint32 {
	var length uint32
	for _, m := range r {
		length = max(length, m.offset+uint32(m.size)) //nolint:gosec // G115: 1, 2 or 4
	}
	return length
}
