package usernet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

var (
	guestMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	gatewayMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	guestIP    = netip.MustParseAddr("10.244.3.7")
	gatewayIP  = netip.MustParseAddr("169.254.75.1")
)

func anything(netip.AddrPort) (bool, string) { return true, "" }

// guest is a machine without QEMU: another TCP/IP stack at the other end of the socket.
type guest struct {
	*stack.Stack
	link *channel.Endpoint
	card net.Conn
	out  *writer
}

// newGuest creates a guest and serves its network until the test ends. Ports are published at an address of the host's
// loopback.
func newGuest(t *testing.T, change func(*Options)) (*guest, *Network) {
	t.Helper()
	o := Options{
		MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC, MTU: 1450, Listen: netip.MustParseAddr("127.0.0.1"),
		Allow: anything, loopback: true,
	}
	if change != nil {
		change(&o)
	}
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	served := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- n.Serve(ctx, ours) }()
	g := &guest{card: theirs, out: &writer{conn: theirs}}
	g.start(ctx, t)
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, context.Canceled) {
			t.Errorf("serving ended with %v", err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		g.Close()
	})
	return g, n
}

func (g *guest) start(ctx context.Context, t *testing.T) {
	t.Helper()
	g.Stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}), arp.NewProtocol,
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	g.link = channel.New(1024, 1450+header.EthernetMinimumSize, tcpip.LinkAddress(guestMAC))
	gateway := tcpip.AddrFrom4(gatewayIP.As4())
	link, _ := tcpip.NewSubnet(gateway, tcpip.MaskFromBytes([]byte{255, 255, 255, 255}))
	for _, problem := range []tcpip.Error{
		g.CreateNIC(nic, ethernet.New(g.link)),
		g.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(guestIP.As4()), PrefixLen: 32},
		}, stack.AddressProperties{}),
	} {
		if problem != nil {
			t.Fatal(problem)
		}
	}
	g.SetRouteTable([]tcpip.Route{{Destination: link, NIC: nic}, {Destination: header.IPv4EmptySubnet, Gateway: gateway, NIC: nic}})
	go func() {
		for {
			packet := g.link.ReadContext(ctx)
			if packet == nil || g.out.write(bytes.Clone(packet.ToView().AsSlice())) != nil {
				return
			}
			packet.DecRef()
		}
	}()
	go func() {
		for {
			frame, err := readFrame(g.card)
			if err != nil {
				return
			}
			packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
			g.link.InjectInbound(0, packet)
			packet.DecRef()
		}
	}()
}

func readFrame(from io.Reader) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(from, frame)
	return frame, err
}

// dial connects the guest to an address.
func (g *guest) dial(t *testing.T, to netip.AddrPort) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.Stack, full(to), ipv4.ProtocolNumber)
}

// echo answers each connection with what the client says, and with the client's address as it sees it.
func echo(t *testing.T, listener net.Listener) {
	t.Helper()
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = fmt.Fprintln(conn, conn.RemoteAddr())
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

func listen(t *testing.T) (net.Listener, netip.AddrPort) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	echo(t, listener)
	return listener, listener.Addr().(*net.TCPAddr).AddrPort()
}

// say sends text, closes that direction, and returns everything that comes back.
func say(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		_, _ = io.WriteString(conn, text)
		_ = conn.(stream).CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("reading the answer after %d bytes: %v", len(answer), err)
	}
	return string(answer)
}

func TestGuestConnectsToOthers(t *testing.T) {
	_, server := listen(t)
	g, n := newGuest(t, nil)
	conn, err := g.dial(t, server)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("carried whole. ", 200_000)
	if answer := say(t, conn, text); !strings.HasSuffix(answer, text) {
		t.Errorf("%d bytes come back of %d", len(answer), len(text))
	}
	if sent, _ := n.Sent(); sent < 100 {
		t.Errorf("the guest is said to have sent %d frames", sent)
	}
}

func TestRefusalsReachTheGuest(t *testing.T) {
	listener, server := listen(t)
	_ = listener.Close()
	g, _ := newGuest(t, nil)
	began := time.Now()
	if conn, err := g.dial(t, server); err == nil {
		_ = conn.Close()
		t.Error("the guest is connected to a port where nothing is")
	}
	if time.Since(began) > 5*time.Second {
		t.Error("the guest has to find out for itself")
	}
}

// TestGuestStaysInside: the guest must not reach what only the process may reach: the process itself, by any of its
// addresses.
func TestGuestStaysInside(t *testing.T) {
	_, server := listen(t)
	g, n := newGuest(t, func(o *Options) { o.Allow = Outside })
	for _, to := range []netip.AddrPort{
		server, netip.AddrPortFrom(netip.MustParseAddr("127.8.9.10"), server.Port()), netip.AddrPortFrom(netip.MustParseAddr("0.0.0.0"), server.Port()),
		netip.AddrPortFrom(gatewayIP, server.Port()), netip.MustParseAddrPort("224.0.0.1:80"), netip.MustParseAddrPort("255.255.255.255:80"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if conn, err := gonet.DialContextTCP(ctx, g.Stack, full(to), ipv4.ProtocolNumber); err == nil {
			_ = conn.Close()
			t.Errorf("the guest is connected to %s", to)
		}
		cancel()
	}
	if n.refusal(netip.AddrPortFrom(guestIP, 80)) == "" {
		t.Error("the guest may reach its own published ports through the process")
	}
	for text, want := range map[string]bool{"10.96.0.1:443": true, "10.96.0.1:0": false, "[::1]:80": false} {
		if ok, reason := Outside(netip.MustParseAddrPort(text)); ok != want || ok != (reason == "") {
			t.Errorf("%s is outside: %v (%q)", text, ok, reason)
		}
	}
}

func TestOthersConnectToTheGuest(t *testing.T) {
	free, address := listen(t)
	_ = free.Close()
	g, n := newGuest(t, func(o *Options) { o.Ports = []Port{SamePort(TCP, address.Port())} })
	inside, err := gonet.ListenTCP(g.Stack, n.guest(address.Port()), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, inside)
	conn, err := net.DialTimeout("tcp4", address.String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// The client is in the namespace itself, so the guest sees the gateway.
	if answer := say(t, conn, "hello"); !strings.HasPrefix(answer, gatewayIP.String()+":") || !strings.HasSuffix(answer, "\nhello") {
		t.Errorf("the guest answers %q", answer)
	}
	client := netip.MustParseAddrPort("10.244.9.9:4242")
	if n.shown(client) != client {
		t.Errorf("the guest is shown %s instead of %s", n.shown(client), client)
	}
	for range 2 { // the second one finds the client's port taken
		known, err := n.dialGuest(t.Context(), client, address.Port())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = known.Close() })
		line := make([]byte, 14)
		if _, err := io.ReadFull(known, line); err != nil || !strings.HasPrefix(string(line), "10.244.9.9:") {
			t.Errorf("the guest is shown %q (%v)", line, err)
		}
	}
}

// TestClosedPortsOfTheGuest: a client gets an error at once, and the runner gets the operating system's error.
func TestClosedPortsOfTheGuest(t *testing.T) {
	free, address := listen(t)
	_ = free.Close()
	_, n := newGuest(t, func(o *Options) { o.Ports = []Port{SamePort(TCP, address.Port())} })
	conn, err := net.DialTimeout("tcp4", address.String(), 5*time.Second)
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client of a closed port gets %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := n.DialContext(ctx, "tcp", "10.244.3.7:10248"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the runner gets %v", err)
	}
}

func TestDatagrams(t *testing.T) {
	outside, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	server := outside.LocalAddr().(*net.UDPAddr).AddrPort()
	g, n := newGuest(t, func(o *Options) { o.Ports = []Port{SamePort(UDP, server.Port()^1)} })
	to := full(server)
	inside, err := gonet.DialUDP(g.Stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	answer := exchange(t, inside, outside, strings.Repeat("x", 4000))
	if len(answer) != 4000 {
		t.Errorf("%d bytes of 4000 come back", len(answer))
	}

	at := n.guest(server.Port() ^ 1)
	served, err := gonet.DialUDP(g.Stack, &at, nil, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("udp4", netip.AddrPortFrom(server.Addr(), server.Port()^1).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, text := range []string{"first", "second"} {
		if answer := exchange(t, client, served, text); answer != text {
			t.Errorf("%q comes back as %q", text, answer)
		}
	}
}

// exchange sends a datagram to a server that sends it back.
func exchange(t *testing.T, client net.Conn, server net.PacketConn, text string) string {
	t.Helper()
	go func() {
		datagram := make([]byte, maxDatagram)
		if length, from, err := server.ReadFrom(datagram); err == nil {
			_, _ = server.WriteTo(datagram[:length], from)
		}
	}()
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, maxDatagram)
	length, err := client.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:length])
}

// TestForgedFramesAreDropped: the guest could send each of these frames, and none of them may reach the stack.
func TestForgedFramesAreDropped(t *testing.T) {
	n := &Network{options: Options{MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC}}
	redirect := packet(guestMAC, gatewayMAC, guestIP, gatewayIP, header.ICMPv4ProtocolNumber)
	redirect[header.EthernetMinimumSize+header.IPv4MinimumSize] = byte(header.ICMPv4DstUnreachable)
	other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	elsewhere := netip.MustParseAddr("10.96.0.10")
	for name, test := range map[string]struct {
		frame []byte
		want  bool
	}{
		"TCP":                      {frame: packet(guestMAC, gatewayMAC, guestIP, elsewhere, header.TCPProtocolNumber), want: true},
		"UDP":                      {frame: packet(guestMAC, gatewayMAC, guestIP, elsewhere, header.UDPProtocolNumber), want: true},
		"echo of the gateway":      {frame: packet(guestMAC, gatewayMAC, guestIP, gatewayIP, header.ICMPv4ProtocolNumber), want: true},
		"advice to the gateway":    {frame: redirect},
		"echo of others":           {frame: packet(guestMAC, gatewayMAC, guestIP, elsewhere, header.ICMPv4ProtocolNumber)},
		"IGMP":                     {frame: packet(guestMAC, gatewayMAC, guestIP, elsewhere, header.IGMPProtocolNumber)},
		"other card":               {frame: packet(other, gatewayMAC, guestIP, elsewhere, header.TCPProtocolNumber)},
		"other address":            {frame: packet(guestMAC, gatewayMAC, elsewhere, guestIP, header.TCPProtocolNumber)},
		"to all":                   {frame: packet(guestMAC, net.HardwareAddr{255, 255, 255, 255, 255, 255}, guestIP, elsewhere, header.UDPProtocolNumber)},
		"cut off":                  {frame: packet(guestMAC, gatewayMAC, guestIP, elsewhere, header.TCPProtocolNumber)[:20]},
		"nothing":                  {frame: nil},
		"question for others":      {frame: question(header.ARPRequest, guestMAC, guestIP, gatewayIP), want: true},
		"question for itself":      {frame: question(header.ARPRequest, guestMAC, guestIP, guestIP)},
		"question as other":        {frame: question(header.ARPRequest, guestMAC, elsewhere, gatewayIP)},
		"question with other card": {frame: question(header.ARPRequest, other, guestIP, gatewayIP)},
		"answer":                   {frame: question(header.ARPReply, guestMAC, guestIP, gatewayIP)},
		"IPv6":                     {frame: slices.Concat(gatewayMAC, guestMAC, []byte{0x86, 0xdd}, make([]byte, 40))},
		"VLAN":                     {frame: slices.Concat(gatewayMAC, guestMAC, []byte{0x81, 0x00}, make([]byte, 40))},
	} {
		if got := n.acceptable(test.frame); got != test.want {
			t.Errorf("%s: accepted is %v", name, got)
		}
	}
}

func packet(from, to net.HardwareAddr, source, target netip.Addr, protocol tcpip.TransportProtocolNumber) []byte {
	ip := header.IPv4(make([]byte, header.IPv4MinimumSize+8))
	ip.Encode(&header.IPv4Fields{
		TotalLength: header.IPv4MinimumSize + 8, TTL: 64, Protocol: uint8(protocol),
		SrcAddr: tcpip.AddrFrom4(source.As4()), DstAddr: tcpip.AddrFrom4(target.As4()),
	})
	if protocol == header.ICMPv4ProtocolNumber {
		ip[header.IPv4MinimumSize] = byte(header.ICMPv4Echo)
	}
	return slices.Concat(to, from, []byte{8, 0}, []byte(ip))
}

func question(operation header.ARPOp, sender net.HardwareAddr, source, target netip.Addr) []byte {
	a := header.ARP(make([]byte, header.ARPSize))
	a.SetIPv4OverEthernet()
	a.SetOp(operation)
	copy(a.HardwareAddressSender(), sender)
	copy(a.ProtocolAddressSender(), source.AsSlice())
	copy(a.ProtocolAddressTarget(), target.AsSlice())
	return slices.Concat(net.HardwareAddr{255, 255, 255, 255, 255, 255}, guestMAC, []byte{8, 6}, []byte(a))
}

// TestServerAnswersFirst: frames that have an answer are not carried.
func TestServerAnswersFirst(t *testing.T) {
	ours, theirs := net.Pipe()
	n, err := Open(Options{
		MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC, MTU: 1450,
		Answer: func(frame []byte) [][]byte { return [][]byte{slices.Concat(frame, []byte("!"))} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- n.Serve(ctx, ours) }()
	go func() { _ = (&writer{conn: theirs}).write([]byte("who am I?")) }()
	if answer, err := readFrame(theirs); string(answer) != "who am I?!" {
		t.Errorf("the guest gets %q (%v)", answer, err)
	}
	cancel()
	if err := <-served; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestLocalAddressesAreNotOutside covers the namespace's own addresses, and those of all hosts of a link.
func TestLocalAddressesAreNotOutside(t *testing.T) {
	n, err := Open(Options{MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC, MTU: 1450, Allow: anything})
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil || len(addresses) == 0 {
		t.Fatalf("there are no addresses (%v)", err)
	}
	for _, address := range addresses {
		if prefix := netip.MustParsePrefix(address.String()); prefix.Addr().Is4() && n.refusal(netip.AddrPortFrom(prefix.Addr(), 80)) == "" {
			t.Errorf("the guest may reach %s", prefix.Addr())
		}
	}
	if got := lastOf(netip.MustParsePrefix("10.244.3.7/24")); got != netip.MustParseAddr("10.244.3.255") {
		t.Errorf("the last address is %s", got)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestOversizedFramesEndTheCard: a length that no frame can have ends the connection.
func TestOversizedFramesEndTheCard(t *testing.T) {
	n, err := Open(Options{MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC, MTU: 1450})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	go func() { _, _ = theirs.Write([]byte{0xff, 0xff, 0xff, 0xff}) }()
	if err := n.Serve(t.Context(), ours); err == nil || !strings.Contains(err.Error(), "4294967295 bytes") {
		t.Errorf("serving ends with %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
