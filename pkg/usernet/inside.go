package usernet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// keepAliveIdle is how long a connection may be silent before the guest is asked whether it is still there, keepAliveInterval how long
	// it may take to say so, and keepAliveCount how often it is asked.
	keepAliveIdle, keepAliveInterval, keepAliveCount = time.Minute, 15 * time.Second, 4
	// lingering is how long the guest may take to acknowledge what is left of a connection that was closed.
	lingering = 30 * time.Second
	// lookAgain is how often it is checked whether it has.
	lookAgain = 50 * time.Millisecond
)

// inside is the guest's side of a connection.
type inside struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

// newInside has a connection end whose guest is gone: a machine that is reset says nothing.
func newInside(queue *waiter.Queue, endpoint tcpip.Endpoint) *inside {
	endpoint.SocketOptions().SetKeepAlive(true)
	idle, interval := tcpip.KeepaliveIdleOption(keepAliveIdle), tcpip.KeepaliveIntervalOption(keepAliveInterval)
	_ = endpoint.SetSockOpt(&idle) // none of them can fail
	_ = endpoint.SetSockOpt(&interval)
	_ = endpoint.SetSockOptInt(tcpip.KeepaliveCountOption, keepAliveCount)
	return &inside{TCPConn: gonet.NewTCPConn(queue, endpoint), endpoint: endpoint}
}

// Abort resets the connection.
func (c *inside) Abort() { c.endpoint.Abort() }

// finish closes the connection and waits until the stack has forgotten it. A guest that does not take what is left is reset: otherwise what the
// stack holds for it would stay as long as the guest likes.
func (c *inside) finish() {
	_ = c.Close()
	for deadline := time.Now().Add(lingering); time.Now().Before(deadline); time.Sleep(lookAgain) {
		switch tcp.EndpointState(c.endpoint.State()) { //nolint:gosec // G115: a state is a small number
		case tcp.StateClose, tcp.StateError, tcp.StateTimeWait, tcp.StateInitial:
			return
		}
	}
	c.Abort()
}

// errPortTaken: a local port is in use for another connection.
var errPortTaken = errors.New("the port is taken")

// connect connects to a port of the guest from an address; port 0 lets the stack choose.
func (n *Network) connect(ctx context.Context, from netip.AddrPort, port uint16) (*inside, error) {
	queue := new(waiter.Queue)
	endpoint, problem := n.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, queue)
	if problem != nil {
		return nil, fmt.Errorf("connecting to the guest: %s", problem)
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	if problem := endpoint.Bind(full(from)); problem != nil {
		endpoint.Close()
		return nil, fmt.Errorf("%w: %s: %s", errPortTaken, from, problem)
	}
	problem = endpoint.Connect(n.guest(port))
	if _, started := problem.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			endpoint.Abort()
			return nil, ctx.Err()
		case <-ready:
		}
		problem = endpoint.LastError()
	}
	if problem != nil {
		endpoint.Close()
		return nil, &net.OpError{Op: "connect", Net: "tcp", Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.options.Address, port)), Err: meaning(problem)}
	}
	return newInside(queue, endpoint), nil
}

// meaning gives the stack's error for a closed port the meaning that the operating system's has.
func meaning(problem tcpip.Error) error {
	if _, refused := problem.(*tcpip.ErrConnectionRefused); refused {
		return syscall.ECONNREFUSED
	}
	return errors.New(problem.String())
}

// isRefused says whether nothing is at a port, in the words of the operating system or of the stack.
func isRefused(err error) bool {
	operation := new(net.OpError)
	return errors.Is(err, syscall.ECONNREFUSED) ||
		errors.As(err, &operation) && operation.Err.Error() == (&tcpip.ErrConnectionRefused{}).String()
}
