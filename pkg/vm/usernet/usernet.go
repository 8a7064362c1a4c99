// Package usernet carries the packets of one guest without any privileges.
//
// The guest's card is a socket. Its frames end in a TCP/IP stack of this process (gVisor's), which opens an ordinary
// socket for each connection of the guest, and connects to the guest for each connection to a published port. Others
// see the address of the process's network namespace, and the guest sees the real addresses of others: it has the
// namespace's own address, and no address is translated.
//
// It does not carry IPv6, ICMP except echo requests to the gateway, multicast and broadcast, and connections to ports
// that are not published.
package usernet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Protocols of published ports.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Port is a port of the guest that others reach under the same number.
type Port struct {
	// Protocol is TCP or UDP.
	Protocol string
	// Number is 1 to 65535.
	Number uint16
}

// String returns the port as protocol:number.
func (p Port) String() string { return fmt.Sprintf("%s:%d", p.Protocol, p.Number) }

// ParsePort parses what String returns.
func ParsePort(text string) (Port, error) {
	protocol, digits, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || number == 0 || protocol != TCP && protocol != UDP {
		return Port{}, fmt.Errorf("%q is not a port such as tcp:443 or udp:53", text)
	}
	return Port{Protocol: protocol, Number: uint16(number)}, nil
}

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
	// Listen is the local address at which they are published; invalid for all addresses.
	Listen netip.Addr
	// Answer answers a frame of the guest, as a DHCP server does; frames without answers are carried. By default no
	// frame is answered.
	Answer func(frame []byte) [][]byte
	// Allow reports whether the guest may reach an address. The default is Outside.
	Allow func(netip.AddrPort) bool
	// Log receives what could not be carried; by default nothing is logged.
	Log logr.Logger

	// loopback also carries packets for loopback addresses, because tests cannot rely on other addresses.
	loopback bool
}

// Outside allows what is outside the network namespace. It excludes loopback addresses, which are this process's own,
// and everything that is not the address of one host.
func Outside(to netip.AddrPort) bool {
	address := to.Addr()
	first := netip.AddrFrom4([4]byte{0, 255, 255, 255}) // "this network", RFC 1122
	last := netip.AddrFrom4([4]byte{223, 255, 255, 255})
	return address.Is4() && !address.IsLoopback() && first.Less(address) && !last.Less(address) && to.Port() != 0
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
	inward, outward    slots
	toGuest, fromGuest sessions
	publishedUDP       map[uint16]bool
	clientsOf          *rate.Limiter
	closers            []func() error
	sent               atomic.Uint64
}

// Open publishes the guest's ports. It returns the error of a port that is already in use; then nothing is left open.
func Open(o Options) (*Network, error) {
	if !o.Address.Is4() || !o.Gateway.Is4() || o.Address == o.Gateway || len(o.MAC) != 6 || len(o.GatewayMAC) != 6 {
		return nil, errors.New("a guest's network needs an IPv4 address and an Ethernet address each for guest and gateway")
	}
	if o.MTU < minMTU || o.MTU > maxMTU {
		return nil, fmt.Errorf("the MTU is %d and has to be between %d and %d", o.MTU, minMTU, maxMTU)
	}
	if o.Allow == nil {
		o.Allow = Outside
	}
	if o.Answer == nil {
		o.Answer = func([]byte) [][]byte { return nil }
	}
	n := &Network{
		options: o, log: o.Log, inward: make(slots, maxFlows), outward: make(slots, maxFlows), publishedUDP: map[uint16]bool{},
		clientsOf: rate.NewLimiter(newClients, newClients),
	}
	if err := n.findLocal(); err != nil {
		return nil, err
	}
	n.context, n.cancel = context.WithCancel(context.Background())
	if err := n.build(); err != nil {
		n.cancel()
		return nil, err
	}
	for _, port := range o.Ports {
		if err := n.publish(port); err != nil {
			return nil, errors.Join(fmt.Errorf("publishing port %s of the guest: %w", port, err), n.Close())
		}
	}
	return n, nil
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

// findLocal finds the addresses that are not outside.
func (n *Network) findLocal() error {
	n.local = map[netip.Addr]bool{n.options.Address: true}
	if n.options.loopback {
		return nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("finding the addresses of the pod: %w", err)
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		n.local[prefix.Addr()], n.local[lastOf(prefix)] = true, true
	}
	return nil
}

// lastOf returns the last address of an IPv4 subnet, which is its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])|uint32(1<<(32-p.Bits())-1))
	return netip.AddrFrom4(bytes)
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
