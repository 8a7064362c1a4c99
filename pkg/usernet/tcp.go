package usernet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// maxFlows bounds the TCP connections of the guest, in both directions together, and so the memory that others can have this process
	// take: each takes at most four buffers. Further ones are reset.
	maxFlows = 1024
	// maxPending bounds those that the guest has asked for and that are not there yet. Further ones have to be asked for again.
	maxPending = 512
	// connectTimeout is how long a connection may take to be there.
	connectTimeout = time.Minute
	// copySize is how much of one direction of a connection is under way in this process, in bytes.
	copySize = 16 << 10
	// keepAliveIdle is how long a connection may be silent before the guest is asked whether it is still there, keepAliveInterval how long
	// it may take to say so, and keepAliveCount how often it is asked.
	keepAliveIdle, keepAliveInterval, keepAliveCount = time.Minute, 15 * time.Second, 4
)

// slots count what may be there a number of times.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// connectOutside connects the guest to where it wants to. It is called for each first packet of a connection.
func (n *Network) connectOutside(request *tcp.ForwarderRequest) {
	id := request.ID()
	to := addrPort(id.LocalAddress, id.LocalPort)
	if !n.mayReach(to) || !n.flows.take() {
		request.Complete(true)
		return
	}
	if !n.carry(func() { defer n.flows.give(); n.answer(request, to) }) {
		n.flows.give()
		request.Complete(true)
	}
}

func (n *Network) answer(request *tcp.ForwarderRequest, to netip.AddrPort) {
	dialer := net.Dialer{Timeout: connectTimeout}
	outside, err := dialer.DialContext(n.context, "tcp4", to.String())
	if err != nil {
		n.log.V(1).Info("the guest could not be connected", "to", to.String(), "error", err.Error())
		request.Complete(true)
		return
	}
	queue := new(waiter.Queue)
	endpoint, problem := request.CreateEndpoint(queue)
	request.Complete(problem != nil)
	if problem != nil {
		_ = outside.Close()
		return
	}
	keepAlive(endpoint)
	n.splice(outside, gonet.NewTCPConn(queue, endpoint))
}

// mayReach says whether the guest may reach an address. The gateway is this process, and the guest's own address is its published ports.
func (n *Network) mayReach(to netip.AddrPort) bool {
	return n.context.Err() == nil && to.Addr() != n.options.Gateway && to.Addr() != n.options.Address && n.options.Allow(to)
}

// keepAlive has a connection end whose guest is gone: one that is reset says nothing.
func keepAlive(endpoint tcpip.Endpoint) {
	endpoint.SocketOptions().SetKeepAlive(true)
	idle, interval := tcpip.KeepaliveIdleOption(keepAliveIdle), tcpip.KeepaliveIntervalOption(keepAliveInterval)
	_ = endpoint.SetSockOpt(&idle) // none of them can fail
	_ = endpoint.SetSockOpt(&interval)
	_ = endpoint.SetSockOptInt(tcpip.KeepaliveCountOption, keepAliveCount)
}

// publish opens a port for others.
func (n *Network) publish(port Port) error {
	at := netip.AddrPortFrom(n.options.Listen, port.Number)
	if port.Protocol == UDP {
		socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		n.closers = append(n.closers, socket.Close)
		n.carry(func() { n.takeDatagrams(socket, port.Number) })
		return nil
	}
	listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	n.closers = append(n.closers, listener.Close)
	n.carry(func() { n.takeConnections(listener, port.Number) })
	return nil
}

func (n *Network) takeConnections(listener *net.TCPListener, port uint16) {
	for {
		outside, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the client has gone
			n.log.V(1).Info("a connection could not be taken", "port", port, "error", err.Error())
			if !n.pause() {
				return
			}
			continue
		}
		if !n.flows.take() {
			reset(outside)
			continue
		}
		if !n.carry(func() { defer n.flows.give(); n.connectInside(outside, port) }) {
			n.flows.give()
			reset(outside)
		}
	}
}

// pause waits a moment; false when the network is closed.
func (n *Network) pause() bool {
	select {
	case <-n.context.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// connectInside connects a client to the guest, under the client's own address.
func (n *Network) connectInside(outside *net.TCPConn, port uint16) {
	ctx, cancel := context.WithTimeout(n.context, connectTimeout)
	defer cancel()
	inside, err := n.dialGuest(ctx, n.shown(outside.RemoteAddr().(*net.TCPAddr).AddrPort()), port)
	if err != nil {
		n.log.V(1).Info("the guest does not take a connection", "port", port, "from", outside.RemoteAddr().String(), "error", err.Error())
		reset(outside)
		return
	}
	n.splice(outside, inside)
}

// shown is the address that the guest is shown of a client. A client in the namespace itself is shown as the gateway.
func (n *Network) shown(client netip.AddrPort) netip.AddrPort {
	address := client.Addr().Unmap()
	if address == n.options.Address || address.IsLoopback() {
		return netip.AddrPortFrom(n.options.Gateway, 0)
	}
	return netip.AddrPortFrom(address, client.Port())
}

// dialGuest connects to the guest. Where a client's port is taken, because the client has another connection from it to another port of the
// guest, another one is taken.
func (n *Network) dialGuest(ctx context.Context, from netip.AddrPort, port uint16) (*gonet.TCPConn, error) {
	conn, err := gonet.DialTCPWithBind(ctx, n.stack, full(from), n.guest(port), ipv4.ProtocolNumber)
	if operation := new(net.OpError); err != nil && ctx.Err() == nil && !errors.As(err, &operation) {
		conn, err = gonet.DialTCPWithBind(ctx, n.stack, full(netip.AddrPortFrom(from.Addr(), 0)), n.guest(port), ipv4.ProtocolNumber)
	}
	return conn, err
}

// reset ends a connection as an operating system does that has nothing at a port.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// stream is a connection of which one direction can end before the other.
type stream interface {
	net.Conn
	CloseWrite() error
}

// splice carries everything between two connections until both directions have ended, or the network is closed, and closes both.
func (n *Network) splice(outside net.Conn, inside *gonet.TCPConn) {
	out := outside.(*net.TCPConn)
	stop := context.AfterFunc(n.context, func() { _, _ = out.Close(), inside.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(out, inside)
	}()
	pass(inside, out)
	<-done
	_, _ = out.Close(), inside.Close()
}

// pass carries one direction. One that breaks takes the other along: an end that is not orderly must not look like one.
func pass(to, from stream) {
	// The wrappers hide ReadFrom and WriteTo, which would take larger buffers.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copySize))
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		for _, conn := range []stream{to, from} {
			if c, ok := conn.(*net.TCPConn); ok {
				_ = c.SetLinger(0)
			}
			_ = conn.Close()
		}
	}
}
