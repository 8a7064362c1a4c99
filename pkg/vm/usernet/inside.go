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
	// keepAliveIdle is how long a connection may be silent before the guest is probed, keepAliveInterval the interval
	// between probes, and keepAliveCount how many of them may stay unanswered.
	keepAliveIdle, keepAliveInterval, keepAliveCount = time.Minute, 15 * time.Second, 4
	// lingering is how long the guest may take to acknowledge the remaining data of a closed connection.
	lingering = 30 * time.Second
	// lookAgain is how often that is checked.
	lookAgain = 50 * time.Millisecond
)

// inside is the guest's side of a connection.
type inside struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

// newInside enables keepalives, so that a connection ends when its guest is gone: a machine that is reset sends
// nothing.
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

// finish closes the connection and waits until the stack has released it. If the guest does not take the remaining
// data, the connection is reset; otherwise the guest could make the stack keep the data indefinitely.
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

// errPortTaken says that a local port is in use for another connection.
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

// meaning translates the stack's error for a closed port to that of the operating system.
func meaning(problem tcpip.Error) error {
	if _, refused := problem.(*tcpip.ErrConnectionRefused); refused {
		return syscall.ECONNREFUSED
	}
	return errors.New(problem.String())
}

// isRefused reports whether nothing listens at a port, by the error of the operating system or of the stack.
func isRefused(err error) bool {
	operation := new(net.OpError)
	return errors.Is(err, syscall.ECONNREFUSED) ||
		errors.As(err, &operation) && operation.Err.Error() == (&tcpip.ErrConnectionRefused{}).String()
}
