package guestnet

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
)

// Ports of DHCP (RFC 2131) and DHCPv6 (RFC 8415).
const (
	portDHCPServer   = 67
	portDHCPClient   = 68
	portDHCPv6Client = 546
	portDHCPv6Server = 547
)

const (
	lengthEthernet = 14
	lengthIPv4     = 20
	lengthIPv6     = 40
	lengthUDP      = 8

	hopLimitOnLink = 255 // RFC 4861: a message that has been forwarded is not neighbor discovery
	hopLimit       = 64
)

// packet is an IP packet in an Ethernet frame.
type packet struct {
	sourceMAC, targetMAC net.HardwareAddr
	source, target       netip.Addr
	protocol, hopLimit   uint8
	payload              []byte
}

// parsePacket parses a frame. The packet refers to the frame's memory.
func parsePacket(frame []byte) (packet, bool) {
	if len(frame) < lengthEthernet {
		return packet{}, false
	}
	p := packet{targetMAC: net.HardwareAddr(frame[:6]), sourceMAC: net.HardwareAddr(frame[6:12])}
	switch rest := frame[lengthEthernet:]; binary.BigEndian.Uint16(frame[offsetEtherType:]) {
	case etherTypeIPv4:
		return p, p.parseIPv4(rest)
	case etherTypeIPv6:
		return p, p.parseIPv6(rest)
	default:
		return packet{}, false
	}
}

// parseIPv4 parses what follows the Ethernet header (RFC 791). It rejects fragments.
func (p *packet) parseIPv4(b []byte) bool {
	if len(b) < lengthIPv4 || b[0]>>4 != 4 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return false
	}
	header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < lengthIPv4 || total < header || total > len(b) {
		return false
	}
	p.source, p.target = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.hopLimit, p.protocol, p.payload = b[8], b[9], b[header:total]
	return true
}

// parseIPv6 parses what follows the Ethernet header (RFC 8200). It treats extension headers as payload.
func (p *packet) parseIPv6(b []byte) bool {
	if len(b) < lengthIPv6 || b[0]>>4 != 6 {
		return false
	}
	end := lengthIPv6 + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return false
	}
	p.source, p.target = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.protocol, p.hopLimit, p.payload = b[6], b[7], b[lengthIPv6:end]
	return true
}

// frame encodes the packet.
func (p packet) frame() []byte {
	frame := append(append([]byte{}, p.targetMAC...), p.sourceMAC...)
	if p.source.Is4() {
		frame = binary.BigEndian.AppendUint16(frame, etherTypeIPv4)
		frame = append(frame, p.headerIPv4()...)
	} else {
		frame = binary.BigEndian.AppendUint16(frame, etherTypeIPv6)
		frame = append(frame, p.headerIPv6()...)
	}
	return append(frame, p.payload...)
}

func (p packet) headerIPv4() []byte {
	header := make([]byte, lengthIPv4)
	header[0] = 4<<4 | lengthIPv4/4
	binary.BigEndian.PutUint16(header[2:], length16(lengthIPv4+len(p.payload)))
	header[8], header[9] = p.hopLimit, p.protocol
	copy(header[12:], p.source.AsSlice())
	copy(header[16:], p.target.AsSlice())
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return header
}

func (p packet) headerIPv6() []byte {
	header := make([]byte, lengthIPv6)
	header[0] = 6 << 4
	binary.BigEndian.PutUint16(header[4:], length16(len(p.payload)))
	header[6], header[7] = p.protocol, p.hopLimit
	copy(header[8:], p.source.AsSlice())
	copy(header[24:], p.target.AsSlice())
	return header
}

// datagram is the payload of a UDP packet (RFC 768).
type datagram struct {
	sourcePort, targetPort uint16
	payload                []byte
}

// parseUDP parses the datagram of a packet. It ignores the checksum: a guest's may still be empty, because its card
// would fill it in on the way to a wire.
func (p packet) parseUDP() (datagram, bool) {
	if p.protocol != protocolUDP || len(p.payload) < lengthUDP {
		return datagram{}, false
	}
	length := int(binary.BigEndian.Uint16(p.payload[4:]))
	if length < lengthUDP || length > len(p.payload) {
		return datagram{}, false
	}
	return datagram{
		sourcePort: binary.BigEndian.Uint16(p.payload), targetPort: binary.BigEndian.Uint16(p.payload[2:]),
		payload: p.payload[lengthUDP:length],
	}, true
}

// withUDP returns the packet with a datagram in it.
func (p packet) withUDP(d datagram) packet {
	length := length16(lengthUDP + len(d.payload))
	udp := binary.BigEndian.AppendUint16(nil, d.sourcePort)
	udp = binary.BigEndian.AppendUint16(udp, d.targetPort)
	udp = binary.BigEndian.AppendUint16(udp, length)
	udp = append(binary.BigEndian.AppendUint16(udp, 0), d.payload...)

	pseudo := append(p.source.AsSlice(), p.target.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(length))
	pseudo = binary.BigEndian.AppendUint32(pseudo, protocolUDP)
	sum := checksum(append(pseudo, udp...))
	if sum == 0 {
		sum = 0xffff // 0 means no checksum
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	p.protocol, p.payload = protocolUDP, udp
	return p
}

// length16 returns a length in two bytes. The lengths of answers and programs are far below the limit.
func length16(length int) uint16 { return uint16(min(length, math.MaxUint16)) } //nolint:gosec // G115: it cannot overflow

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
