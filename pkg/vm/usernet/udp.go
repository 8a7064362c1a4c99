package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// maxDatagram is how long a datagram may be, in bytes. Longer ones are dropped, not truncated.
const maxDatagram = 16 << 10

// buffers are for datagrams in transit.
var buffers = sync.Pool{New: func() any { return new([maxDatagram + 1]byte) }}

// sendOutside begins a session of the guest. It is called for each datagram that belongs to no session.
func (n *Network) sendOutside(request *udp.ForwarderRequest) {
	id := request.ID()
	to := addrPort(id.LocalAddress, id.LocalPort)
	if n.isResolver(to) {
		n.takeQueries(request)
		return
	}
	if reason := n.refusal(to); reason != "" {
		n.refuse(UDP, to, reason)
		return
	}
	// From a published port the guest only replies: a session of its own would conflict with the client's.
	if n.publishedUDP[id.RemotePort] {
		return
	}
	if !n.sockets.take() {
		n.refuse(UDP, to, tooMany)
		return
	}
	if !n.sendTo(request, to) {
		n.sockets.give()
	}
}

// sendTo carries a session of the guest, and returns one of the sockets when it ends. It returns false if there is no
// session.
func (n *Network) sendTo(request *udp.ForwarderRequest, to netip.AddrPort) bool {
	queue := new(waiter.Queue)
	endpoint, problem := request.CreateEndpoint(queue)
	if problem != nil {
		return false
	}
	inside := gonet.NewUDPConn(queue, endpoint)
	ctx, s := n.fromGuest.begin(n.context, netip.Addr{})
	begun := n.carry(func() {
		defer n.sockets.give()
		defer n.fromGuest.ended(s)
		if reason := n.misrouted(to); reason != "" {
			n.refuse(UDP, to, reason)
			_ = inside.Close()
			return
		}
		outside, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			n.log.V(1).Info("the guest's datagram could not be sent", "to", to.String(), "error", err.Error())
			_ = inside.Close()
			return
		}
		stop := context.AfterFunc(ctx, func() { _, _ = outside.Close(), inside.Close() })
		defer stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			passDatagrams(n.fromGuest, s, outside.Write, inside)
			s.end()
		}()
		passDatagrams(n.fromGuest, s, inside.Write, outside)
		s.end()
		<-done
		_, _ = outside.Close(), inside.Close()
	})
	if !begun {
		n.fromGuest.ended(s)
		_ = inside.Close()
	}
	return begun
}

// passDatagrams carries one direction of a session until it is silent, or one side is closed. It does not end because
// nothing listens at a port yet: the next datagram may reach something.
func passDatagrams(all *sessions, s *session, write func([]byte) (int, error), from net.Conn) {
	buffer := buffers.Get().(*[maxDatagram + 1]byte)
	defer buffers.Put(buffer)
	datagram := buffer[:]
	for {
		if err := from.SetReadDeadline(time.Now().Add(sessionIdle)); err != nil {
			return
		}
		length, err := from.Read(datagram)
		var timeout net.Error
		switch {
		case err == nil && length <= maxDatagram:
			all.use(s)
			_, _ = write(datagram[:length]) // a datagram may be lost
		case err == nil || isRefused(err):
		case errors.As(err, &timeout) && timeout.Timeout() && s.silent() < sessionIdle:
		default:
			return
		}
	}
}

// takeDatagrams carries what others send to a published port.
func (n *Network) takeDatagrams(socket *net.UDPConn, port uint16) {
	clients := clients{known: map[netip.AddrPort]*client{}}
	datagram := make([]byte, maxDatagram+1)
	for {
		length, from, err := socket.ReadFromUDPAddrPort(datagram)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || length > maxDatagram {
			if err != nil && !n.pause() {
				return
			}
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if c := clients.of(from, func() *client { return n.newClient(socket, &clients, from, port) }); c != nil {
			n.toGuest.use(c.session)
			_, _ = c.inside.Write(datagram[:length]) // a datagram may be lost
		}
	}
}

// client is a peer that sends to a published port.
type client struct {
	session *session
	inside  *gonet.UDPConn
}

// clients are those of one port.
type clients struct {
	mu    sync.Mutex
	known map[netip.AddrPort]*client
}

// of returns a known client, or creates it; nil if it cannot be created.
func (c *clients) of(from netip.AddrPort, create func() *client) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[from]; known != nil {
		return known
	}
	made := create()
	if made != nil {
		c.known[from] = made
	}
	return made
}

func (c *clients) forget(from netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, from)
}

// newClient begins the session of a client, from the client's own address, and carries the guest's replies. If the
// client's port is taken, because the client has another session from it to another port of the guest, it uses another
// port.
func (n *Network) newClient(socket *net.UDPConn, all *clients, from netip.AddrPort, port uint16) *client {
	if !n.toGuest.admits(from.Addr()) || !n.clientsOf.Allow() {
		return nil
	}
	guest := n.guest(port)
	shown := n.shown(from)
	local, other := full(shown), full(netip.AddrPortFrom(shown.Addr(), 0))
	inside, err := gonet.DialUDP(n.stack, &local, &guest, ipv4.ProtocolNumber)
	if err != nil {
		inside, err = gonet.DialUDP(n.stack, &other, &guest, ipv4.ProtocolNumber)
	}
	if err != nil {
		n.log.V(1).Info("the guest does not get a datagram", "port", port, "from", from.String(), "error", err.Error())
		return nil
	}
	ctx, s := n.toGuest.begin(n.context, from.Addr())
	begun := n.carry(func() {
		defer n.toGuest.ended(s)
		defer all.forget(from)
		stop := context.AfterFunc(ctx, func() { _ = inside.Close() })
		defer stop()
		passDatagrams(n.toGuest, s, func(answer []byte) (int, error) { return socket.WriteToUDPAddrPort(answer, from) }, inside)
		_ = inside.Close()
	})
	if !begun {
		n.toGuest.ended(s)
		_ = inside.Close()
		return nil
	}
	return &client{session: s, inside: inside}
}
