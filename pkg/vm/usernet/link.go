package usernet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	// minMTU is what each IPv4 host has to accept (RFC 791), maxMTU the longest packet.
	minMTU, maxMTU = 576, 65535
	// queued is how many frames may wait for the guest. Further frames are dropped, as a switch does.
	queued = 2048
	// batch is how many frames are written at once at most.
	batch = 64
	// lengthSize is the size of the length that QEMU's stream puts before each frame.
	lengthSize = 4
	// maxFrame is more than QEMU sends; anything longer is not a frame.
	maxFrame = 128 << 10
)

// bufferSize bounds what the stack buffers for one direction of a connection, in bytes. The path to the guest is short,
// so that more would not make it faster.
const bufferSize = 64 << 10

// build creates the stack. It accepts packets for any address, and sends from any address, because it represents
// everything beyond the guest.
func (n *Network) build() error {
	n.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			// Packets for loopback addresses are refused like others: the guest gets an error, and Options.Refused is called.
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}), arp.NewProtocol,
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	mtu := uint32(n.options.MTU) + header.EthernetMinimumSize //nolint:gosec // G115: it is at most maxMTU
	n.link = channel.New(queued, mtu, tcpip.LinkAddress(n.options.GatewayMAC))
	n.link.LinkEPCapabilities |= stack.CapabilityRXChecksumOffload // a socket corrupts nothing
	forgotten := tcpip.TCPTimeWaitTimeoutOption(time.Second)       // nothing is reordered on the way to the guest
	sack, tune := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}
	gateway := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(n.options.Gateway.As4()), PrefixLen: 32},
	}
	guest := tcpip.AddrFrom4(n.options.Address.As4())
	for _, problem := range []tcpip.Error{
		n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack),
		n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &tune),
		n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &forgotten),
		n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &receive),
		n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &send),
		n.stack.CreateNIC(nic, ethernet.New(n.link)),
		n.stack.AddProtocolAddress(nic, gateway, stack.AddressProperties{}),
		n.stack.SetPromiscuousMode(nic, true),
		n.stack.SetSpoofing(nic, true),
		n.stack.AddStaticNeighbor(nic, ipv4.ProtocolNumber, guest, tcpip.LinkAddress(n.options.MAC)),
	} {
		if problem != nil {
			return fmt.Errorf("making the guest's network: %s", problem)
		}
	}
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(n.stack, bufferSize, maxPending, n.connectOutside).HandlePacket)
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(n.stack, n.sendOutside).HandlePacket)
	return nil
}

// Serve carries frames to and from the guest's card. It speaks QEMU's "stream" network, in which each frame follows its
// length in four bytes, the most significant first. Serve returns when the context ends, or with the error of a broken
// connection.
func (n *Network) Serve(ctx context.Context, card net.Conn) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = card.Close() })
	defer stop()
	out := &writer{conn: card}
	group.Go(func() error { return n.receive(card, out) })
	group.Go(func() error { return n.transmit(ctx, out) })
	err := group.Wait()
	for _, end := range []error{net.ErrClosed, io.EOF, syscall.ECONNRESET, syscall.EPIPE} { // QEMU has ended, or the context
		if errors.Is(err, end) {
			return nil
		}
	}
	return err
}

func (n *Network) receive(card io.Reader, out *writer) error {
	reader := bufio.NewReaderSize(card, 2*maxMTU)
	for {
		frame, err := read(reader)
		if err != nil {
			return err
		}
		n.sent.Add(1)
		answers := n.options.Answer(frame)
		if len(answers) == 0 && n.acceptable(frame) {
			packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
			n.link.InjectInbound(0, packet)
			packet.DecRef()
		}
		if err := out.write(answers...); err != nil {
			return err
		}
	}
}

// read reads a frame. A frame that is too long for any packet is returned empty.
func read(reader *bufio.Reader) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(reader, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	switch {
	case size > maxFrame:
		return nil, fmt.Errorf("the guest's card sends a frame of %d bytes, which is longer than any", size)
	case size > maxMTU+header.EthernetMinimumSize:
		_, err := reader.Discard(int(size))
		return nil, err
	}
	frame := make([]byte, size)
	_, err := io.ReadFull(reader, frame)
	return frame, err
}

// acceptable reports whether the stack should see a frame: one from the guest itself, with its own addresses.
func (n *Network) acceptable(frame []byte) bool {
	if len(frame) < header.EthernetMinimumSize {
		return false
	}
	ether, rest := header.Ethernet(frame), frame[header.EthernetMinimumSize:]
	if !bytes.Equal([]byte(ether.SourceAddress()), n.options.MAC) {
		return false
	}
	switch ether.Type() {
	case header.ARPProtocolNumber:
		return n.asksForOthers(header.ARP(rest))
	case header.IPv4ProtocolNumber:
		return bytes.Equal([]byte(ether.DestinationAddress()), n.options.GatewayMAC) && n.carries(rest)
	}
	return false
}

// asksForOthers reports whether an ARP packet is a request of the guest for another address. The guest also asks for
// its own address, to find out whether another host has it; none does.
func (n *Network) asksForOthers(a header.ARP) bool {
	return a.IsValid() && a.Op() == header.ARPRequest && bytes.Equal(a.HardwareAddressSender(), n.options.MAC) &&
		bytes.Equal(a.ProtocolAddressSender(), n.options.Address.AsSlice()) && !bytes.Equal(a.ProtocolAddressTarget(), n.options.Address.AsSlice())
}

// carries reports whether the stack can handle an IPv4 packet. The stack would answer an echo request for any host, in
// that host's name.
func (n *Network) carries(packet []byte) bool {
	ip := header.IPv4(packet)
	if !ip.IsValid(len(packet)) || ip.SourceAddress() != tcpip.AddrFrom4(n.options.Address.As4()) {
		return false
	}
	switch ip.TransportProtocol() {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		// Other messages would tell the stack about its connections.
		payload := ip.Payload()
		return netip.AddrFrom4(ip.DestinationAddress().As4()) == n.options.Gateway && len(payload) >= header.ICMPv4MinimumSize &&
			header.ICMPv4(payload).Type() == header.ICMPv4Echo
	}
	return false
}

func (n *Network) transmit(ctx context.Context, out *writer) error {
	for {
		packet := n.link.ReadContext(ctx)
		if packet == nil {
			return ctx.Err()
		}
		var frames [][]byte
		for ; packet != nil; packet = n.link.Read() {
			view := packet.ToView()
			frames = append(frames, bytes.Clone(view.AsSlice()))
			view.Release()
			packet.DecRef()
			if len(frames) == batch {
				break
			}
		}
		if err := out.write(frames...); err != nil {
			return err
		}
	}
}
