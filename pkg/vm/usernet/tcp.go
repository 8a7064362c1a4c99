package usernet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// maxPending bounds the connections that the guest has requested and that are not established yet. Further ones
	// have to be requested again.
	maxPending = 512
	// connectTimeout is how long it may take to establish a connection.
	connectTimeout = 20 * time.Second
	// copySize is how much of one direction of a connection this process copies at once, in bytes.
	copySize = 16 << 10
	// socketBuffer and downloadBuffer bound what the kernel buffers for a socket, in bytes; it doubles them
	// (socket(7)). A guest that downloads over a long distance needs the larger downloadBuffer.
	socketBuffer, downloadBuffer = 64 << 10, 128 << 10
	// halfIdle is how long one direction may be silent once the other has ended.
	halfIdle = 5 * time.Minute
)

// connectOutside connects the guest to the requested address. It is called for each first packet of a connection.
func (n *Network) connectOutside(request *tcp.ForwarderRequest) {
	id := request.ID()
	to := addrPort(id.LocalAddress, id.LocalPort)
	answer := n.answer
	if n.isResolver(to) {
		answer = n.answerQueries
	} else if reason := n.refusal(to); reason != "" {
		n.refuse(TCP, to, reason)
		request.Complete(true)
		return
	}
	if !n.outward.take() {
		n.refuse(TCP, to, tooMany)
		request.Complete(true)
		return
	}
	if !n.carry(func() { defer n.outward.give(); answer(request, to) }) {
		n.outward.give()
		request.Complete(true)
	}
}

func (n *Network) answer(request *tcp.ForwarderRequest, to netip.AddrPort) {
	if reason := n.misrouted(to); reason != "" {
		n.refuse(TCP, to, reason)
		request.Complete(true)
		return
	}
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
	n.splice(outside.(*net.TCPConn), newInside(queue, endpoint), downloadBuffer)
}

// takeConnections carries the connections of others to a port of the guest.
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
		client := outside.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !n.inward.take(client) {
			reset(outside)
			continue
		}
		if !n.carry(func() { defer n.inward.give(client); n.connectInside(outside, port) }) {
			n.inward.give(client)
			reset(outside)
		}
	}
}

// pause waits a moment. It returns false if the network is closed.
func (n *Network) pause() bool {
	select {
	case <-n.context.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// connectInside connects a client to the guest, from the client's own address.
func (n *Network) connectInside(outside *net.TCPConn, port uint16) {
	ctx, cancel := context.WithTimeout(n.context, connectTimeout)
	inside, err := n.dialGuest(ctx, n.shown(outside.RemoteAddr().(*net.TCPAddr).AddrPort()), port)
	cancel()
	if err != nil {
		n.log.V(1).Info("the guest does not take a connection", "port", port, "from", outside.RemoteAddr().String(), "error", err.Error())
		reset(outside)
		return
	}
	n.splice(outside, inside, socketBuffer)
}

// shown returns the address that the guest sees of a client. A client in the namespace itself is seen as the gateway.
func (n *Network) shown(client netip.AddrPort) netip.AddrPort {
	address := client.Addr().Unmap()
	if n.local[address] || address == n.options.Address || address.IsLoopback() {
		return netip.AddrPortFrom(n.options.Gateway, 0)
	}
	return netip.AddrPortFrom(address, client.Port())
}

// dialGuest connects to the guest. If the client's port is taken, because the client has another connection from it to
// another port of the guest, it uses another port.
func (n *Network) dialGuest(ctx context.Context, from netip.AddrPort, port uint16) (*inside, error) {
	conn, err := n.connect(ctx, from, port)
	if errors.Is(err, errPortTaken) {
		conn, err = n.connect(ctx, netip.AddrPortFrom(from.Addr(), 0), port)
	}
	return conn, err
}

// reset ends a connection as an operating system does if nothing listens at a port.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// stream is a connection of which one direction can end before the other.
type stream interface {
	net.Conn
	CloseWrite() error
}

// splice copies everything between two connections until both directions have ended, or the network is closed, and
// closes both.
func (n *Network) splice(outside *net.TCPConn, guest *inside, buffer int) {
	_, _ = outside.SetReadBuffer(buffer), outside.SetWriteBuffer(socketBuffer)
	stop := context.AfterFunc(n.context, func() { reset(outside); guest.Abort() })
	defer stop()
	broken := func() { reset(outside); guest.Abort() }
	var half atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(outside, guest, &half, broken)
	}()
	pass(guest, outside, &half, broken)
	<-done
	_ = outside.Close()
	guest.finish()
}

// pass copies one direction. If it breaks, the other direction is broken as well, because an abnormal end must not look
// like a normal one. Once one direction has ended, the other may be silent only for some time.
func pass(to, from stream, half *atomic.Bool, broken func()) {
	buffer := make([]byte, copySize)
	for {
		if half.Load() {
			_ = from.SetReadDeadline(time.Now().Add(halfIdle))
		}
		length, err := from.Read(buffer)
		if length > 0 {
			if _, problem := to.Write(buffer[:length]); problem != nil {
				broken()
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			half.Store(true)
			_ = to.SetReadDeadline(time.Now().Add(halfIdle)) // the other direction reads there
			if to.CloseWrite() != nil {
				broken()
			}
			return
		case err != nil:
			broken()
			return
		}
	}
}
