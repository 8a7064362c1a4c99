package guestnet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// spoofing is a frame that a guest may try to send, and whether it leaves the pod.
type spoofing struct {
	frame []byte
	want  bool
}

// pretender creates frames of a guest with the given addresses, and forged ones.
type pretender struct {
	t                 *testing.T
	mac               MAC
	own4, own6, link6 string
}

const (
	gateway4, gateway6, neighbour4, neighbour6, service4 = "10.75.0.1", "fd75::1", "10.75.0.9", "fd75::9", "10.96.0.10"
	// neighbourLink is the link-local address of the MAC otherMAC.
	neighbourLink = "fe80::ff:fe00:9"
)

func (p pretender) ndp(source, target string, m ndp.Message) []byte {
	p.t.Helper()
	made, ok := packet{
		sourceMAC: net.HardwareAddr(p.mac), targetMAC: allNodesMAC, source: netip.MustParseAddr(source), target: netip.MustParseAddr(target), hopLimit: hopLimitOnLink,
	}.withNDP(m)
	if !ok {
		p.t.Fatalf("%T cannot be encoded", m)
	}
	return made.frame()
}

func (p pretender) advertisement(source, target string) []byte {
	return p.ndp(source, "ff02::1", &ndp.NeighborAdvertisement{Override: true, TargetAddress: netip.MustParseAddr(target)})
}

// arp is an ARP message about sender, from the guest's MAC, with another MAC in it.
func (p pretender) arp(operation byte, hardware MAC, sender, target string) []byte {
	frame := arpFrame(p.mac, sender, target)
	frame[offsetARPOperation+1] = operation
	copy(frame[offsetARPSenderMAC:], hardware)
	return frame
}

// behind inserts an extension header of eight bytes before the payload of an IPv6 frame.
func behind(frame []byte, header byte, content ...byte) []byte {
	extended := slices.Clone(frame[:offsetIPv6Payload])
	extended = append(extended, frame[offsetIPv6Next], 0)
	extended = append(append(extended, content...), make([]byte, 6-len(content))...)
	extended[offsetIPv6Next] = header
	binary.BigEndian.PutUint16(extended[18:], binary.BigEndian.Uint16(extended[18:])+8)
	return append(extended, frame[offsetIPv6Payload:]...)
}

// fragment4 turns a frame with an IPv4 packet into a fragment.
func fragment4(frame []byte, flagsAndOffset uint16) []byte {
	frame = slices.Clone(frame)
	binary.BigEndian.PutUint16(frame[offsetIPv4Protect:], flagsAndOffset)
	return frame
}

func withType(frame []byte, etherType uint16) []byte {
	frame = slices.Clone(frame)
	binary.BigEndian.PutUint16(frame[offsetEtherType:], etherType)
	return frame
}

// report is a multicast listener report (RFC 3810) without groups.
func (p pretender) report(source string, kind byte) []byte {
	icmp := packet{
		sourceMAC: net.HardwareAddr(p.mac), targetMAC: allNodesMAC, source: netip.MustParseAddr(source), target: netip.MustParseAddr("ff02::16"),
		hopLimit: 1, protocol: protocolICMPv6, payload: []byte{kind, 0, 0, 0, 0, 0, 0, 0},
	}
	return behind(icmp.frame(), nextHopByHop, 5, 2, 0, 0)
}

func (p pretender) frames() map[string]spoofing {
	from := func(mac MAC, source, target string) []byte { return udpFrame(mac, source, target, 4000, 4001) }
	probe := func(target string) []byte { return p.arp(1, p.mac, "0.0.0.0", target) }
	detection := func(target string) []byte {
		return p.ndp("::", "ff02::1", &ndp.NeighborSolicitation{TargetAddress: netip.MustParseAddr(target)})
	}
	redirect := packet{
		sourceMAC: net.HardwareAddr(p.mac), targetMAC: allNodesMAC, source: netip.MustParseAddr(p.link6), target: allNodes, hopLimit: hopLimitOnLink,
		protocol: protocolICMPv6, payload: append([]byte{typeRedirect}, make([]byte, 39)...),
	}.frame()
	liar := p.advertisement(p.own6, gateway6)
	return map[string]spoofing{
		"UDP":                                          {from(p.mac, p.own4, gateway4), true},
		"a first fragment":                             {fragment4(from(p.mac, p.own4, gateway4), 0x2000), true},
		"a later fragment":                             {fragment4(from(p.mac, p.own4, gateway4), 7), true},
		"a broadcast":                                  {from(p.mac, p.own4, "255.255.255.255"), true},
		"UDP over IPv6":                                {from(p.mac, p.own6, gateway6), true},
		"UDP from the link-local address":              {from(p.mac, p.link6, gateway6), true},
		"a fragment of IPv6":                           {behind(from(p.mac, p.own6, gateway6), nextFragment, 0, 1), true},
		"ARP for the gateway":                          {p.arp(1, p.mac, p.own4, gateway4), true},
		"ARP's answer about itself":                    {p.arp(2, p.mac, p.own4, gateway4), true},
		"a probe of its own address":                   {probe(p.own4), true},
		"a solicitation for the gateway":               {p.ndp(p.own6, gateway6, &ndp.NeighborSolicitation{TargetAddress: netip.MustParseAddr(gateway6)}), true},
		"an advertisement of itself":                   {p.advertisement(p.own6, p.own6), true},
		"an advertisement of its link-local address":   {p.advertisement(p.link6, p.link6), true},
		"an advertisement of one address by another":   {p.advertisement(p.own6, p.link6), true},
		"detection of duplicates":                      {detection(p.own6), true},
		"detection of duplicates on the link":          {detection(p.link6), true},
		"a report of groups":                           {p.report(p.link6, 143), true},
		"a report of groups without address":           {p.report("::", 143), true},
		"another MAC":                                  {from(otherMAC, p.own4, gateway4), false},
		"another MAC over IPv6":                        {from(otherMAC, p.own6, gateway6), false},
		"another MAC in ARP":                           {arpFrame(otherMAC, p.own4, gateway4), false},
		"the address of another pod":                   {from(p.mac, neighbour4, gateway4), false},
		"the address of the gateway":                   {from(p.mac, gateway4, neighbour4), false},
		"no address":                                   {from(p.mac, "0.0.0.0", gateway4), false},
		"DNS's answer from the Service":                {udpFrame(p.mac, service4, neighbour4, 53, 4001), false},
		"a first fragment of another pod":              {fragment4(from(p.mac, neighbour4, gateway4), 0x2000), false},
		"a later fragment of another pod":              {fragment4(from(p.mac, neighbour4, gateway4), 7), false},
		"another pod over IPv6":                        {from(p.mac, neighbour6, gateway6), false},
		"the gateway over IPv6":                        {from(p.mac, gateway6, neighbour6), false},
		"another's link-local address":                 {from(p.mac, neighbourLink, gateway6), false},
		"no address over IPv6":                         {from(p.mac, "::", gateway6), false},
		"ARP's answer about the gateway":               {p.arp(2, p.mac, gateway4, neighbour4), false},
		"ARP's question by the gateway":                {p.arp(1, p.mac, gateway4, neighbour4), false},
		"ARP about itself with another MAC in it":      {p.arp(2, otherMAC, p.own4, gateway4), false},
		"a probe of another's address":                 {probe(neighbour4), false},
		"an answer without an address":                 {p.arp(2, p.mac, "0.0.0.0", p.own4), false},
		"an advertisement of the gateway":              {liar, false},
		"the same by the gateway itself":               {p.advertisement(gateway6, gateway6), false},
		"the same from the link-local address":         {p.advertisement(p.link6, gateway6), false},
		"the same behind a hop-by-hop header":          {behind(liar, nextHopByHop, 1, 4), false},
		"the same behind destination options":          {behind(liar, nextDestinations, 1, 4), false},
		"the same behind a routing header":             {behind(liar, nextRouting), false},
		"the same as a fragment":                       {behind(liar, nextFragment, 0, 0), false},
		"the same as a fragment with options in it":    {behind(behind(liar, nextDestinations, 1, 4), nextFragment, 0, 0), false},
		"the same behind what looks like a report":     {behind(liar, nextHopByHop, 5, 2, 0, 0), false},
		"detection of another's duplicates":            {detection(neighbour6), false},
		"a report of groups by another":                {p.report(neighbourLink, 143), false},
		"a query of groups by another":                 {p.report(gateway6, 130), false},
		"a redirect":                                   {redirect, false},
		"STP":                                          {withType(from(p.mac, p.own4, gateway4), 38), false},
		"LLDP":                                         {withType(from(p.mac, p.own4, gateway4), 0x88cc), false},
		"reverse ARP":                                  {withType(p.arp(2, p.mac, p.own4, gateway4), 0x8035), false},
		"PPPoE":                                        {withType(from(p.mac, p.own4, gateway4), 0x8863), false},
		"UDP of another that is cut off in the header": {from(p.mac, neighbour4, gateway4)[:30], false},
		"UDP of another without ports":                 {from(p.mac, neighbour4, gateway4)[:34], false},
		"ARP that is cut off":                          {p.arp(2, p.mac, gateway4, neighbour4)[:41], false},
		"ARP that is cut off before its addresses":     {p.arp(2, p.mac, gateway4, neighbour4)[:20], false},
		"an advertisement that is cut off":             {liar[:offsetNDPTarget+8], false},
		"IPv6 that is cut off":                         {from(p.mac, neighbour6, gateway6)[:50], false},
		"a header alone":                               {from(p.mac, p.own4, gateway4)[:14], false},
	}
}

// TestGuestsSendUnderTheirOwnNameOnly evaluates the rules.
func TestGuestsSendUnderTheirOwnNameOnly(t *testing.T) {
	c := makeConfig(t, []string{"10.75.0.2/24", "fd75::2/64"})
	p := pretender{t: t, mac: podMAC, own4: "10.75.0.2", own6: "fd75::2", link6: "fe80::42:aff:fe4b:2"}
	const drop, pass = 7, 9
	machine, err := bpf.NewVM(sources(c, drop, pass))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range p.frames() {
		t.Run(name, func(t *testing.T) {
			verdict, err := machine.Run(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{true: pass, false: drop}[test.want]; verdict != want {
				t.Errorf("the verdict is %d, want %d (%d drops, 0 is a frame that was read behind its end, and passes)", verdict, want, drop)
			}
		})
	}
	for name, test := range map[string]struct{ frame []byte }{"an empty frame": {}, "a frame of one byte": {[]byte{1}}} {
		if verdict, err := machine.Run(test.frame); err != nil || verdict != drop {
			t.Errorf("%s: the verdict is %d (%v), want %d", name, verdict, err, drop)
		}
	}
}

// TestForgedFramesDoNotLeaveThePod sends the frames through a tap device, the bridge and the filter of the kernel.
func TestForgedFramesDoNotLeaveThePod(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]bool{"by default": false, "with foreign sources": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := podnet.NewHost(t)
			pod := host.NewPod(t, podnet.PodOptions{IPv6: true})
			o := testOptions()
			o.StateFile, o.ForeignSources = t.TempDir()+"/network.json", foreign
			n := mustTake(t, pod, o)
			t.Cleanup(func() {
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			})
			serve(t, n)
			guest := pod.NewGuest(t, n.Tap, n.MAC)
			p := pretender{t: t, mac: MAC(n.MAC), own4: n.Address4.String(), own6: n.Address6.String(), link6: linkLocal(MAC(n.MAC)).String()}
			frames := p.frames()
			own := frames["UDP"].frame
			// With connection tracking, the kernel's bridge keeps fragments until it can reassemble the packet.
			lone := map[string]bool{"a first fragment": true, "a later fragment": true}
			for tag, etherType := range map[string]uint16{"802.1Q": 0x8100, "802.1ad": 0x88a8} {
				frames["a tag of "+tag] = spoofing{frame: tagged(own, etherType)}
			}
			seen := sendAll(t, host.CaptureIncoming(t, pod.HostInterface), guest, frames, own)
			for name, test := range frames {
				if len(test.frame) <= lengthEthernet || lone[name] {
					continue // a packet socket sends no header alone
				}
				want := test.want
				if foreign && name == "the address of another pod" {
					want = true
				} else if foreign {
					continue
				}
				if seen[name] != want {
					t.Errorf("%s: leaves the pod is %t, want %t", name, seen[name], want)
				}
			}
		})
	}
}

func tagged(frame []byte, etherType uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, etherType), 42)
	return slices.Concat(frame[:12], tag, frame[12:])
}

// linkLocal returns the address that the kernel derives from a MAC.
func linkLocal(mac MAC) netip.Addr {
	return Config{MAC: mac}.own6()[0]
}

// sendAll sends all frames between two marks, each to its own MAC, and returns which of them have left the pod.
func sendAll(t *testing.T, host *podnet.Capture, guest *podnet.Guest, frames map[string]spoofing, mark []byte) map[string]bool {
	t.Helper()
	var socket *os.File
	err := guest.Do(func() (err error) {
		socket, err = rawSocket(podnet.Interface)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	byMAC := map[[6]byte]string{}
	send := func(name string, frame []byte) {
		target := [6]byte{2, 0xff, 0, 0, byte(len(byMAC) >> 8), byte(len(byMAC))}
		byMAC[target] = name
		if _, err := socket.Write(append(target[:], frame[6:]...)); err != nil {
			t.Fatalf("sending %s: %s", name, err)
		}
	}
	seen := map[string]bool{}
	awaitMark := func(name string) {
		await(t, name, func() bool {
			send(name, mark) // repeatedly, because frames are lost while links come up
			for _, frame := range host.Frames() {
				seen[byMAC[[6]byte(frame)]] = true
			}
			return seen[name]
		})
	}
	awaitMark("the first mark")
	for name, f := range frames {
		if len(f.frame) > lengthEthernet {
			send(name, f.frame)
		}
	}
	awaitMark("the last mark")
	return seen
}

// rawSocket sends frames through an interface of the thread's namespace.
func rawSocket(name string) (*os.File, error) {
	card, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: card.Index}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
