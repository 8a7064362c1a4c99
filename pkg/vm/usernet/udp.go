package usernet

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// maxSessions bounds the pairs of addresses between which datagrams are carried. A further one ends the one that
	// was silent longest.
	maxSessions = 1024
	// sessionIdle is how long a pair may be silent (RFC 4787, REQ-5: at least two minutes).
	sessionIdle = 2 * time.Minute
	// maxDatagram is how long a datagram may be, in bytes. Longer ones are dropped, not truncated.
	maxDatagram = 16 << 10
)

// session is a pair of addresses between which datagrams are carried.
type session struct {
	used atomic.Int64 // when a datagram was last carried, in nanoseconds since 1970
	end  context.CancelFunc
	at   *list.Element
}

func (s *session) silent() time.Duration { return time.Since(time.Unix(0, s.used.Load())) }

// sessions are the existing sessions, the one that was silent longest first.
type sessions struct {
	mu  sync.Mutex
	all list.List
}

// begin adds a session that ends with its context, and ends the one that was silent longest if there are too many.
func (s *sessions) begin(ctx context.Context) (context.Context, *session) {
	ctx, cancel := context.WithCancel(ctx)
	begun := &session{end: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.Len() >= maxSessions {
		oldest := s.all.Remove(s.all.Front()).(*session)
		oldest.at = nil
		oldest.end()
	}
	begun.used.Store(time.Now().UnixNano())
	begun.at = s.all.PushBack(begun)
	return ctx, begun
}

// use records that a datagram was carried.
func (s *sessions) use(in *session) {
	in.used.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.at != nil {
		s.all.MoveToBack(in.at)
	}
}

func (s *sessions) ended(over *session) {
	over.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if over.at != nil {
		s.all.Remove(over.at)
		over.at = nil
	}
}

// buffers are for datagrams in transit.
var buffers = sync.Pool{New: func() any { return new([maxDatagram + 1]byte) }}

// sendOutside begins a session of the guest. It is called for each datagram that belongs to no session.
func (n *Network) sendOutside(request *udp.ForwarderRequest) {
	id := request.ID()
	to := addrPort(id.LocalAddress, id.LocalPort)
	// From a published port the guest only replies: a session of its own would conflict with the client's.
	if !n.mayReach(to) || n.publishedUDP[id.RemotePort] {
		return
	}
	queue := new(waiter.Queue)
	endpoint, problem := request.CreateEndpoint(queue)
	if problem != nil {
		return
	}
	inside := gonet.NewUDPConn(queue, endpoint)
	ctx, s := n.fromGuest.begin(n.context)
	begun := n.carry(func() {
		defer n.fromGuest.ended(s)
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
			passDatagrams(&n.fromGuest, s, outside.Write, inside)
			s.end()
		}()
		passDatagrams(&n.fromGuest, s, inside.Write, outside)
		s.end()
		<-done
		_, _ = outside.Close(), inside.Close()
	})
	if !begun {
		n.fromGuest.ended(s)
		_ = inside.Close()
	}
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

// newClients is how many new clients of published ports are accepted per second. Datagrams of others are dropped.
const newClients = 500

// newClient begins the session of a client, from the client's own address, and carries the guest's replies. If the
// client's port is taken, because the client has another session from it to another port of the guest, it uses another
// port.
func (n *Network) newClient(socket *net.UDPConn, all *clients, from netip.AddrPort, port uint16) *client {
	if !n.clientsOf.Allow() {
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
	ctx, s := n.toGuest.begin(n.context)
	begun := n.carry(func() {
		defer n.toGuest.ended(s)
		defer all.forget(from)
		stop := context.AfterFunc(ctx, func() { _ = inside.Close() })
		defer stop()
		passDatagrams(&n.toGuest, s, func(answer []byte) (int, error) { return socket.WriteToUDPAddrPort(answer, from) }, inside)
		_ = inside.Close()
	})
	if !begun {
		n.toGuest.ended(s)
		_ = inside.Close()
		return nil
	}
	return &client{session: s, inside: inside}
}
