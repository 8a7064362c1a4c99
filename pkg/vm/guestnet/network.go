// Package guestnet lets a guest take over its pod's place on the network: address, MAC, routes and MTU.
//
// The pod's interface (the uplink) and the guest's tap become the two ports of a bridge in the pod's network namespace.
// The guest has the pod's MAC and gets the rest by DHCP, DHCPv6 and router advertisements, which are answered on the
// tap by raw frames and so reach only the guest. Nothing outside the namespace is changed or has to know about this.
//
// The namespace itself keeps one address on the bridge, RunnerAddress, which is the same in every pod: through it the
// runner reaches the guest under the pod's address, and the guest reaches the runner. A filter on the uplink keeps all
// frames with this address inside.
//
// The namespace outlives the runner. Before anything is changed, the pod's configuration is written to a file, from
// which the next runner of the pod continues, even if the last one was killed halfway.
package guestnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interfaces that Take creates in the pod's namespace.
const (
	// BridgeName is the bridge between the pod's interface and the guest's.
	BridgeName = "br-guest"
	// TapName is the tap device to which the guest's card is connected.
	TapName = "tap-guest"
)

var (
	// RunnerAddress is the runner's address on the bridge. The guest gets a route to it by DHCP.
	RunnerAddress = netip.AddrFrom4([4]byte{169, 254, 75, 1})
	// RunnerAddress6 is the runner's address on the bridge of a pod with IPv6. Guests reach it without a route.
	RunnerAddress6 = netip.MustParseAddr("fe80::75:1")

	// linkPrefix are the addresses that every pod uses internally: RunnerAddress6 and the aliases of gateways.
	linkPrefix = netip.PrefixFrom(RunnerAddress6, 112).Masked()
)

// Options says how to take over a pod's network.
type Options struct {
	// StateFile keeps the pod's configuration while it is taken over. It is on storage that lives as long as the pod,
	// not only as long as the container: an emptyDir. Required.
	StateFile string
	// Interface is the pod's interface; by default it is found as described at Inspect.
	Interface string
	// Hostname is the guest's name, announced by DHCP.
	Hostname string
	// DNSServers and NTPServers are announced by DHCP (IPv4) and DHCPv6 (IPv6).
	DNSServers []netip.Addr
	NTPServers []netip.Addr
	// SearchDomains are announced along with the servers. A resolver such as systemd's sends names under .local, where
	// clusters have theirs, to servers only if the names are under one of these.
	SearchDomains []string
	// ForeignSources lets the guest send from addresses that are not its own, as it does if it routes packets of
	// others. By default such frames are dropped.
	ForeignSources bool
	// Log receives the guest's requests; by default nothing is logged.
	Log logr.Logger

	// after is called after each step that changes something: tests kill the process there.
	after func(step string)
}

// Network is a pod's network that its guest has taken over.
type Network struct {
	// Tap is the name of the guest's tap device. It is persistent, has one queue, and belongs to root.
	Tap string
	// MAC is that of the guest's card: the pod's.
	MAC net.HardwareAddr
	// MTU is that of the guest's card in bytes. Not every client takes it from DHCP, so set it on the card as well
	// (host_mtu).
	MTU int
	// Addresses are the guest's global addresses with the length of their subnets, the pod's addresses first.
	Addresses []netip.Prefix
	// Address4 and Address6 are the pod's addresses, by which the runner reaches the guest. They are invalid if there
	// is none.
	Address4, Address6 netip.Addr

	config    Config
	stateFile string
	after     func(string)
	log       logr.Logger
	handle    *netlink.Handle
	// foreignSources is Options.ForeignSources.
	foreignSources bool
	server         *server
	sockets        *sockets
}

// Take takes over the network of the pod whose network namespace the calling thread is in, or continues where an
// earlier runner of the pod was stopped. The thread may leave the namespace afterwards, because the Network keeps what
// it needs of it.
//
// It needs CAP_NET_ADMIN, CAP_NET_RAW and /dev/net/tun. It returns the errors of Inspect, and ErrLost. After an error
// the pod has its network back, as far as that was possible.
func Take(ctx context.Context, o Options) (*Network, error) {
	if o.StateFile == "" {
		return nil, errors.New("taking over the pod's network: no state file given")
	}
	if o.after == nil {
		o.after = func(string) {}
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening rtnetlink: %w", err)
	}
	config, err := original(handle, o.StateFile, o.Interface)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("finding the pod's network: %w", err)
	}
	o.after("write state")
	n := newNetwork(config, o, handle)
	if err := n.take(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("taking over the pod's network: %w", err), n.Close())
	}
	return n, nil
}

func newNetwork(c Config, o Options, handle *netlink.Handle) *Network {
	addresses4, addresses6 := c.global(netip.Addr.Is4), c.global(netip.Addr.Is6)
	return &Network{
		Tap: TapName, MAC: net.HardwareAddr(c.MAC), MTU: c.MTU, Addresses: append(addresses4, addresses6...),
		Address4: first(addresses4), Address6: first(addresses6),
		config: c, stateFile: o.StateFile, after: o.after, log: o.Log, handle: handle, server: newServer(c, o),
		foreignSources: o.ForeignSources,
	}
}

func (n *Network) take(ctx context.Context) error {
	err := n.run(ctx, n.takeSteps())
	if err == nil {
		n.sockets, err = openSockets(n.handle, n.config.Interface, n.server)
	}
	return err
}

// Close gives the pod its network back and removes bridge, tap and, finally, the state file. Serve must have returned.
// Closing a closed Network has no effect; after an error Close can be called again.
func (n *Network) Close() error {
	if n.handle == nil {
		return nil
	}
	n.sockets.close()
	n.sockets = nil
	if err := n.run(context.Background(), n.giveBackSteps()); err != nil {
		return fmt.Errorf("giving the pod's network back: %w", err)
	}
	n.handle.Close()
	n.handle = nil
	return nil
}

// step is a change that has no effect if it was made already.
type step struct {
	name string
	do   func() error
}

func (n *Network) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		n.after(s.name)
	}
	return nil
}
