package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
)

// Bridge is the name of a host's bridge.
const Bridge = "cni0"

// The addresses of every host. Hosts are not connected to each other.
var (
	// Subnet and Subnet6 are the networks of pods' addresses.
	Subnet  = netip.MustParsePrefix("10.75.0.0/24")
	Subnet6 = netip.MustParsePrefix("fd75::/64")
	// HostAddress and HostAddress6 are the host's own addresses, which are the gateways of pods on the bridge.
	HostAddress  = netip.MustParseAddr("10.75.0.1")
	HostAddress6 = netip.MustParseAddr("fd75::1")
	// LinkGateway and LinkGateway6 are the gateways of point-to-point pods, as in Calico.
	LinkGateway  = netip.MustParseAddr("169.254.1.1")
	LinkGateway6 = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
)

// Host is the namespace of a host of pods. It has the bridge cni0 with the addresses HostAddress and HostAddress6 and
// forwards between its pods. It is connected to nothing else. Its default route leads to the bridge, so that it answers
// ARP for every address on the links of point-to-point pods.
type Host struct {
	*Namespace

	mutex sync.Mutex
	last  netip.Addr // the last IPv4 address given to a pod
}

// NewHost creates a host without pods. It is removed when the test ends.
func NewHost(t testing.TB) *Host {
	t.Helper()
	h := &Host{Namespace: newNamespace(t), last: HostAddress}
	if err := h.Do(makeHost); err != nil {
		t.Fatalf("making a host: %s", err)
	}
	return h
}

func makeHost() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = Bridge
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	return errors.Join(
		setSysctl("ipv4/ip_forward", "1"),
		setSysctl("ipv6/conf/all/forwarding", "1"),
		// Duplicate address detection would delay addresses for a second.
		setSysctl("ipv6/conf/default/accept_dad", "0"),
		setUp("lo"),
		netlink.LinkAdd(bridge),
		addAddress(bridge, netip.PrefixFrom(HostAddress, Subnet.Bits())),
		addAddress(bridge, netip.PrefixFrom(HostAddress6, Subnet6.Bits())),
		netlink.LinkSetUp(bridge),
		addRoute(bridge, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.Addr{}),
	)
}

// nextAddress returns an IPv4 address that no pod has got by default.
func (h *Host) nextAddress() netip.Addr {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.last = h.last.Next()
	return h.last
}

// address6 returns the IPv6 address of the pod with an IPv4 address: fd75::9 for 10.75.0.9.
func address6(address netip.Addr) netip.Addr {
	bytes := Subnet6.Addr().As16()
	bytes[15] = address.As4()[3]
	return netip.AddrFrom16(bytes)
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// addAddress adds an address that is valid at once, without duplicate address detection.
func addAddress(link netlink.Link, address netip.Prefix) error {
	err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address), Flags: noDetection(address)})
	if err != nil {
		return fmt.Errorf("adding the address %s to %s: %w", address, link.Attrs().Name, err)
	}
	return nil
}

// setSysctl sets a value below net of the namespace that the thread is in.
func setSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644)
}
