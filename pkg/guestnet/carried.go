package guestnet

import (
	"errors"
	"net"
	"net/netip"
)

// ErrNoAddress says that a pod has no IPv4 address, without which packets of its guest cannot be carried.
var ErrNoAddress = errors.New("the pod has no IPv4 address")

// Carried is what a guest has whose packets a process carries (pkg/usernet): the pod's IPv4 address, alone in its subnet, and RunnerAddress as
// the gateway to everything else. The pod keeps its network, and no privilege is needed.
type Carried struct {
	// MAC and Address are the guest's: the pod's.
	MAC     net.HardwareAddr
	Address netip.Addr
	// Gateway and GatewayMAC are those of the process.
	Gateway    netip.Addr
	GatewayMAC net.HardwareAddr
	// MTU of the guest's card in bytes, the pod's.
	MTU int

	server *server
}

// NewCarried makes the network of a guest of a pod's. It returns ErrNoAddress. Of the options only what DHCP tells matters.
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

// Answer answers a frame of the guest that asks for its network by DHCP. Others have no answer. The answer is a frame, without what an
// Ethernet card would add.
func (c Carried) Answer(frame []byte) [][]byte {
	var frames [][]byte
	for _, p := range c.server.fromGuest(frame).toGuest {
		frames = append(frames, p.frame())
	}
	return frames
}
