// Package usernet carries the packets of one guest without any privileges.
//
// The guest's card is a socket. Its frames end in a TCP/IP stack of this process (gVisor's), which opens an ordinary
// socket for each connection of the guest, and connects to the guest for each connection to a published port. Others
// see the address of the process's network namespace, and the guest sees the real addresses of others. In a pod, the
// guest has the namespace's own address, and no address is translated. On a host, it has an address that only this
// process knows.
//
// What guest and clients can make the process use is bounded. With 4096 file descriptors or more:
//
//   - 512 TCP connections of the guest, and 512 TCP connections of clients
//   - 1024 pairs of addresses that exchange datagrams in each direction, and 500 new clients a second
//   - 64 questions to resolvers, of 4 KiB, with answers of 64 KiB
//   - 2304 sockets in all, besides those of the published ports
//
// A process that may open fewer files carries fewer connections. One client of published ports (an IPv4 address) has at
// most three times as many connections, and three times as many pairs of addresses, as are still free: 384 of 512 and
// 768 of 1024 if it is alone. So one client cannot keep out others; five can.
//
// It does not carry IPv6, ICMP except echo requests to the gateway, multicast and broadcast, and connections to ports
// that are not published.
package usernet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Options describe the guest and what it may reach.
type Options struct {
	// MAC and Address (IPv4) are the guest's. Frames from other sources are dropped.
	MAC     net.HardwareAddr
	Address netip.Addr
	// Gateway (IPv4) and GatewayMAC are the addresses to which the guest sends everything.
	Gateway    netip.Addr
	GatewayMAC net.HardwareAddr
	// MTU is that of the guest's card in bytes, without the Ethernet header; 576 to 65535.
	MTU int
	// Ports are published.
	Ports []Port
	// Listen is the local IPv4 address at which they are published, unless a port has its own; invalid for all
	// addresses.
	Listen netip.Addr
	// Resolvers answer the questions that the guest sends to port 53 of the gateway, by UDP or TCP; at most 3. A
	// question goes to the first one, and to the next one as well while there is no useful answer. Without resolvers,
	// questions are refused. Allow does not apply to resolvers: they may be addresses that the guest itself must not
	// reach. A guest can use questions to send something out (DNS tunnels), so a guest that must not reach anything has
	// no resolvers.
	Resolvers []netip.AddrPort
	// Answer answers a frame of the guest, as a DHCP server does; frames without answers are carried. By default no
	// frame is answered.
	Answer func(frame []byte) [][]byte
	// Allow reports whether the guest may reach an address, and if not, why. It is called once for each connection, and
	// for the first of each pair of addresses that exchange datagrams. The default is Outside. The gateway, loopback
	// addresses and the guest's own address are refused whatever it says.
	Allow func(to netip.AddrPort) (ok bool, reason string)
	// ReachHost lets Allow decide on the addresses of the network namespace, too. By default they are refused.
	ReachHost bool
	// Refused is called for everything of the guest that is refused, with TCP or UDP, the destination, and the reason.
	// The guest decides how often that is, so the function must be quick and must bound what it keeps or writes. It is
	// called by several goroutines at the same time.
	Refused func(protocol string, to netip.AddrPort, reason string)
	// Log receives what could not be carried; by default nothing is logged.
	Log logr.Logger

	// loopback lets Allow decide on loopback addresses, because tests cannot rely on other addresses.
	loopback bool
}

// Network is the network of one guest.
type Network struct {
	options Options
	stack   *stack.Stack
	link    *channel.Endpoint
	log     logr.Logger

	// context ends with Close, and ends everything in progress; carried counts that. Nothing begins once the network is
	// closed.
	context context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex
	carried sync.WaitGroup

	// local are the addresses of the namespace, and those to which all hosts of its links listen.
	local map[netip.Addr]bool
	// inward and outward are the connections that others and the guest have opened; toGuest and fromGuest are the pairs
	// of addresses between which datagrams are carried. They are separate so that a flood in one direction does not
	// affect the other.
	inward             *shares
	outward            slots
	toGuest, fromGuest *sessions
	// sockets are those of fromGuest, and queries the questions to resolvers.
	sockets, queries slots
	publishedUDP     map[uint16]bool
	clientsOf        *rate.Limiter
	closers          []func() error
	sent             atomic.Uint64
}

// Open publishes the guest's ports, so that they can be connected to before the guest runs. It returns a
// *PortInUseError if a port is already in use; then nothing is left open.
func Open(o Options) (*Network, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Allow == nil {
		o.Allow = Outside
	}
	if o.Answer == nil {
		o.Answer = func([]byte) [][]byte { return nil }
	}
	most, err := ownBounds()
	if err != nil {
		return nil, err
	}
	n := newNetwork(o, most)
	if err := n.findLocal(); err != nil {
		n.cancel()
		return nil, err
	}
	published, err := bind(o.Listen, o.Ports)
	if err != nil {
		n.cancel()
		return nil, err
	}
	for _, s := range published {
		n.closers = append(n.closers, s.Close)
		n.publishedUDP[s.Guest] = n.publishedUDP[s.Guest] || s.Protocol == UDP
	}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	for _, s := range published {
		n.carry(func() { n.serve(s) })
	}
	return n, nil
}

// check returns an error if there cannot be such a guest.
func (o Options) check() error {
	if !o.Address.Is4() || !o.Gateway.Is4() || o.Address == o.Gateway || len(o.MAC) != 6 || len(o.GatewayMAC) != 6 {
		return errors.New("a guest's network needs an IPv4 address and an Ethernet address each for guest and gateway")
	}
	if o.MTU < minMTU || o.MTU > maxMTU {
		return fmt.Errorf("the MTU is %d and has to be between %d and %d", o.MTU, minMTU, maxMTU)
	}
	if len(o.Resolvers) > maxResolvers {
		return fmt.Errorf("the guest has %d resolvers and can have %d", len(o.Resolvers), maxResolvers)
	}
	for _, resolver := range o.Resolvers {
		if !resolver.IsValid() || resolver.Port() == 0 || resolver.Addr().IsUnspecified() {
			return fmt.Errorf("%s is not the address of a resolver", resolver)
		}
	}
	return CheckPorts(o.Listen, o.Ports)
}

func newNetwork(o Options, most bounds) *Network {
	n := &Network{
		options: o, log: o.Log, inward: newShares(most.flows), outward: make(slots, most.flows),
		toGuest: newSessions(most.sessions), fromGuest: newSessions(most.sessions),
		sockets: make(slots, most.sessions+most.closing), queries: make(slots, most.queries),
		publishedUDP: map[uint16]bool{}, clientsOf: rate.NewLimiter(newClients, newClients),
	}
	n.context, n.cancel = context.WithCancel(context.Background())
	return n
}

// serve carries what others send to a published port.
func (n *Network) serve(s socket) {
	if s.Protocol == UDP {
		n.takeDatagrams(s.datagrams, s.Guest)
	} else {
		n.takeConnections(s.connections, s.Guest)
	}
}

// Close ends all connections and closes the published ports. Serve must have returned.
func (n *Network) Close() error {
	n.mu.Lock()
	n.cancel()
	n.mu.Unlock()
	var errs []error
	for _, closer := range n.closers {
		errs = append(errs, closer())
	}
	n.closers = nil
	n.stack.Close() // ends everything that waits for the guest
	n.carried.Wait()
	n.link.Close()
	n.stack.Wait()
	return errors.Join(errs...)
}

// carry runs do in a goroutine that Close waits for. It returns false if the network is closed.
func (n *Network) carry(do func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.context.Err() != nil {
		return false
	}
	n.carried.Go(do)
	return true
}

// Sent returns how many frames the guest has sent.
func (n *Network) Sent() (uint64, error) { return n.sent.Load(), nil }

// DialContext connects to a port of the guest, from the gateway's address. The network is tcp; only the port of the
// address matters.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	return n.connect(ctx, netip.AddrPortFrom(n.options.Gateway, 0), to.Port())
}

// guest returns the address of a port of the guest.
func (n *Network) guest(port uint16) tcpip.FullAddress {
	return full(netip.AddrPortFrom(n.options.Address, port))
}

// nic is the number of the stack's only interface.
const nic = 1

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

func addrPort(address tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(address.As4()), port)
}
