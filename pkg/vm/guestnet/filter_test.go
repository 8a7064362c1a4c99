package guestnet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
)

var otherMAC = MAC{2, 0, 0, 0, 0, 9}

func arpFrame(from MAC, sender, target string) []byte {
	frame := append(append([]byte{}, broadcastMAC...), from...)
	frame = binary.BigEndian.AppendUint16(frame, etherTypeARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, from...), netip.MustParseAddr(sender).AsSlice()...)
	return append(append(frame, make([]byte, 6)...), netip.MustParseAddr(target).AsSlice()...)
}

func udpFrame(from MAC, source, target string, sourcePort, targetPort uint16) []byte {
	p := packet{sourceMAC: net.HardwareAddr(from), targetMAC: broadcastMAC, source: netip.MustParseAddr(source), target: netip.MustParseAddr(target)}
	return p.withUDP(datagram{sourcePort: sourcePort, targetPort: targetPort, payload: []byte("hello")}).frame()
}

func TestFiltersTellFramesApart(t *testing.T) {
	ndpFrame := func(message ndp.Message) []byte { return solicitationFrame(t, message, allNodes) }
	link := func(target string) netip.Addr { return netip.MustParseAddr(target) }
	laterFragment := udpFrame(otherMAC, "10.75.0.1", "10.75.0.2", 1, 67)
	laterFragment[offsetIPv4Protect+1] = 7
	cases := map[string]struct {
		frame                      []byte
		egress, ingress, forServer bool // what the programs hit
	}{
		"ARP for the gateway":                   {frame: arpFrame(otherMAC, "10.75.0.2", "10.75.0.1")},
		"ARP for the runner":                    {frame: arpFrame(otherMAC, "10.75.0.2", "169.254.75.1"), egress: true, ingress: true},
		"ARP of the runner":                     {frame: arpFrame(otherMAC, "169.254.75.1", "10.75.0.2"), egress: true, ingress: true},
		"ARP of the guest that comes back":      {frame: arpFrame(podMAC, "10.75.0.2", "10.75.0.1"), ingress: true},
		"UDP of the runner":                     {frame: udpFrame(otherMAC, "169.254.75.1", "10.75.0.2", 1, 2), egress: true, ingress: true},
		"UDP for the runner":                    {frame: udpFrame(otherMAC, "10.75.0.2", "169.254.75.1", 1, 2), egress: true, ingress: true},
		"UDP of a pod with a similar address":   {frame: udpFrame(otherMAC, "169.254.75.2", "10.75.0.2", 1, 2)},
		"UDP between other ports":               {frame: udpFrame(otherMAC, "10.75.0.1", "10.75.0.2", 67, 53)},
		"a later fragment that looks like DHCP": {frame: laterFragment},
		"DHCP": {
			frame:  dhcpFrame(otherMAC, request(t, dhcpv4.MessageTypeDiscover).ToBytes()),
			egress: true, ingress: true, forServer: true,
		},
		"a DHCP server's answer":      {frame: udpFrame(otherMAC, "10.75.0.1", "10.75.0.2", 67, 68), egress: true, ingress: true},
		"UDP over IPv6":               {frame: udpFrame(otherMAC, "fd75::1", "fd75::2", 547, 53)},
		"UDP of the runner over IPv6": {frame: udpFrame(otherMAC, "fe80::75:1", "fd75::2", 1, 2), egress: true, ingress: true},
		"UDP for an alias":            {frame: udpFrame(otherMAC, "fd75::2", "fe80::75:2", 1, 2), egress: true, ingress: true},
		"UDP to a similar address":    {frame: udpFrame(otherMAC, "fd75::2", "fe80::1:75:2", 1, 2)},
		"DHCPv6 (the guest's MAC)": {
			frame:  dhcpv6Frame(request6(dhcpv6.MessageTypeSolicit).ToBytes()),
			egress: true, ingress: true, forServer: true,
		},
		"a DHCPv6 server's answer": {frame: udpFrame(otherMAC, "fe80::1", "fe80::2", 547, 546), egress: true, ingress: true},
		"a router solicitation (the guest's MAC)": {
			frame: ndpFrame(&ndp.RouterSolicitation{}), egress: true, ingress: true, forServer: true,
		},
		"a router advertisement (the guest's MAC)": {frame: ndpFrame(&ndp.RouterAdvertisement{}), egress: true, ingress: true},
		"a neighbour solicitation for an alias (the guest's MAC)": {
			frame:  ndpFrame(&ndp.NeighborSolicitation{TargetAddress: link("fe80::75:2")}),
			egress: true, ingress: true, forServer: true,
		},
		"a neighbour solicitation (the guest's MAC)": {
			frame: ndpFrame(&ndp.NeighborSolicitation{TargetAddress: link("fd75::1")}), ingress: true,
		},
		"a neighbour advertisement for an alias (the guest's MAC)": {
			frame: ndpFrame(&ndp.NeighborAdvertisement{TargetAddress: link("fe80::75:1")}), egress: true, ingress: true,
		},
		"a frame that is cut off": {frame: udpFrame(otherMAC, "169.254.75.1", "10.75.0.2", 1, 2)[:20]},
		"an empty frame":          {frame: []byte{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for direction, p := range map[string]struct {
				rules []rule
				want  bool
			}{"egress": {keptInside(), c.egress}, "ingress": {keptOutside(podMAC), c.ingress}, "server": {forServer(), c.forServer}} {
				if got := hits(t, p.rules, c.frame); got != p.want {
					t.Errorf("%s: got %t, want %t", direction, got, p.want)
				}
			}
		})
	}
}

// hits runs the program of rules as the kernel would. If the program reads past the end of the frame, the kernel ends
// it with 0, which neither drops nor receives the frame.
func hits(t *testing.T, rules []rule, frame []byte) bool {
	t.Helper()
	const hit = 7
	machine, err := bpf.NewVM(program(rules, hit, 0))
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := machine.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	return verdict == hit
}

func TestTranslatorSeesAdvertisementsOnly(t *testing.T) {
	if frame := solicitationFrame(t, &ndp.NeighborAdvertisement{TargetAddress: RunnerAddress6}, allNodes); !hits(t, forTranslator(), frame) {
		t.Error("an advertisement is not seen")
	}
	if frame := solicitationFrame(t, &ndp.NeighborSolicitation{TargetAddress: RunnerAddress6}, allNodes); hits(t, forTranslator(), frame) {
		t.Error("a solicitation is seen")
	}
}
