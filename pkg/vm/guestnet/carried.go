package guestnet

import (
	"errors"
	"net"
	"net/netip"
)

// ErrNoAddress says that a pod has no IPv4 address, which carrying its guest's packets requires.
var ErrNoAddress = errors.New("the pod has no IPv4 address")

// Carried is the network of a guest whose packets a process carries (pkg/vm/usernet): the pod's IPv4 address, alone in its
// subnet, and RunnerAddress as the gateway to everything else. The pod keeps its network, and no privileges are needed.
type Carried struct {
	// MAC and Address are the guest's: those of the pod.
	MAC     net.HardwareAddr
	Address netip.Addr
	// Gateway and GatewayMAC are those of the process.
	Gateway    netip.Addr
	GatewayMAC net.HardwareAddr
	// MTU is that of the guest's card in bytes, the same as the pod's.
	MTU int

	server *server
}

// NewCarried returns the network of a pod's guest. It may return ErrNoAddress. Of the options only those for DHCP
// matter.
func NewCarried(pod Config, o Options) (Carried, error) {
	addresses := pod.global(netip.Addr.Is4)
	if len(addresses) == 0 {
		return Carried{}, ErrNoAddress
	}
	address := first(addresses)
	alone := Config{
		MAC: pod.MAC, MTU: pod.MTU,
		Addresses: []Address{{Prefix: netip.PrefixFrom(address, address.BitLen())}},
		Routes:    []Route{{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: RunnerAddress, Table: mainTable}},
	}
	server := newServer(alone, o)
	return Carried{MAC: server.guest, Address: address, Gateway: RunnerAddress, GatewayMAC: server.own, MTU: pod.MTU, server: server}, nil
}

// Answer answers a DHCP frame of the guest. Other frames get no answer. An answer is a frame without what an Ethernet
// card would add.
func (c Carried) Answer(frame []byte) [][]byte {
	var frames [][]byte
	for _, p := range c.server.fromGuest(frame).toGuest {
		frames = append(frames, p.frame())
	}
	return frames
}
