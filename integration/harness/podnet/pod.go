package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is the name of a pod's network interface.
const Interface = "eth0"

// PodOptions define a pod. The zero value is a pod as bridge plugins create it: an address of Subnet and a default
// route through HostAddress.
type PodOptions struct {
	// Address is the pod's IPv4 address, one of Subnet. The default is the next free one. Its last byte is also that of
	// the IPv6 address.
	Address netip.Addr
	// MAC is the MAC address of eth0. By default the kernel chooses it.
	MAC net.HardwareAddr
	// MTU is in bytes. The default is 1500.
	MTU int
	// IPv6 also gives the pod an address of Subnet6.
	IPv6 bool
	// NoIPv4 omits the IPv4 address.
	NoIPv4 bool
	// PointToPoint creates the pod as Calico does: it is not on the bridge, its address is alone in its subnet, and its
	// gateway is LinkGateway (LinkGateway6), for which the host answers.
	PointToPoint bool
	// NoGateway omits the default routes.
	NoGateway bool
	// Hairpin makes the bridge send frames back to their origin if needed, as many bridge plugins are configured.
	Hairpin bool
}

// Pod is the namespace of a pod on a Host.
type Pod struct {
	*Namespace
	// Address and Address6 are invalid when the pod has none.
	Address, Address6 netip.Addr
	// Gateway and Gateway6 are invalid when the pod has none.
	Gateway, Gateway6 netip.Addr
	// MAC is the MAC address of eth0 when the pod was created.
	MAC net.HardwareAddr
	// MTU is the MTU of eth0 when the pod was created.
	MTU int
	// HostInterface is the name of the other end of eth0, in the host's namespace.
	HostInterface string
}

// NewPod creates a pod on the host. It is removed when the test ends.
func (h *Host) NewPod(t testing.TB, o PodOptions) *Pod {
	t.Helper()
	if !o.Address.IsValid() {
		o.Address = h.nextAddress()
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	p := &Pod{Namespace: newNamespace(t), MTU: o.MTU, HostInterface: fmt.Sprintf("veth%d", o.Address.As4()[3])}
	p.setAddresses(o)
	if err := errors.Join(h.Do(func() error { return h.connect(p, o) }), p.Do(func() error { return p.configure(o) })); err != nil {
		t.Fatalf("making the pod %s: %s", o.Address, err)
	}
	return p
}

func (p *Pod) setAddresses(o PodOptions) {
	gateway, gateway6 := HostAddress, HostAddress6
	if o.PointToPoint {
		gateway, gateway6 = LinkGateway, LinkGateway6
	}
	if !o.NoIPv4 {
		p.Address, p.Gateway = o.Address, gateway
	}
	if o.IPv6 {
		p.Address6, p.Gateway6 = address6(o.Address), gateway6
	}
	if o.NoGateway {
		p.Gateway, p.Gateway6 = netip.Addr{}, netip.Addr{}
	}
}

// connect creates the pair of interfaces. The host's end goes to the bridge or becomes a separate link.
func (h *Host) connect(p *Pod, o PodOptions) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = p.HostInterface, o.MTU
	veth := &netlink.Veth{
		LinkAttrs: attributes, PeerName: Interface, PeerNamespace: netlink.NsFd(p.file.Fd()), PeerHardwareAddr: o.MAC,
		PeerMTU: uint32(o.MTU), //nolint:gosec // G115: the kernel refuses what is no MTU
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding %s: %w", p.HostInterface, err)
	}
	if o.PointToPoint {
		return h.linkDirectly(veth, p)
	}
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("finding %s: %w", Bridge, err)
	}
	return errors.Join(
		netlink.LinkSetMaster(veth, bridge),
		netlink.LinkSetHairpin(veth, o.Hairpin),
		netlink.LinkSetUp(veth),
	)
}

// linkDirectly does what Calico does on the host's side: the host answers ARP for every address and has a route to the
// pod's address only.
func (h *Host) linkDirectly(veth netlink.Link, p *Pod) error {
	name := veth.Attrs().Name
	err := errors.Join(
		setSysctl("ipv4/conf/"+name+"/proxy_arp", "1"),
		setSysctl("ipv4/neigh/"+name+"/proxy_delay", "0"),
		addAddress(veth, netip.PrefixFrom(LinkGateway6, 64)),
		netlink.LinkSetUp(veth),
	)
	for _, address := range []netip.Addr{p.Address, p.Address6} {
		if address.IsValid() {
			err = errors.Join(err, addRoute(veth, netip.PrefixFrom(address, address.BitLen()), netip.Addr{}))
		}
	}
	return err
}

// configure sets up the pod's end.
func (p *Pod) configure(o PodOptions) error {
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("finding %s: %w", Interface, err)
	}
	p.MAC = link.Attrs().HardwareAddr
	err = errors.Join(setSysctl("ipv6/conf/"+Interface+"/accept_dad", "0"), setUp("lo"), netlink.LinkSetUp(link))
	if p.Address.IsValid() {
		err = errors.Join(err, p.configureFamily(link, p.Address, p.Gateway, Subnet.Bits(), o))
	}
	if p.Address6.IsValid() {
		err = errors.Join(err, p.configureFamily(link, p.Address6, p.Gateway6, Subnet6.Bits(), o))
	}
	if err != nil {
		return err
	}
	return awaitLinkLocal(link)
}

// awaitLinkLocal waits for the address that the kernel adds by itself some time after the interface is up. Then the pod
// is complete.
func awaitLinkLocal(link netlink.Link) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
		}
		if slices.ContainsFunc(addresses, isReady) {
			return nil
		}
	}
	return fmt.Errorf("%s has no link-local address", link.Attrs().Name)
}

func isReady(a netlink.Addr) bool {
	return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
}

func (p *Pod) configureFamily(link netlink.Link, address, gateway netip.Addr, bits int, o PodOptions) error {
	if o.PointToPoint {
		bits = address.BitLen()
	}
	if err := addAddress(link, netip.PrefixFrom(address, bits)); err != nil || !gateway.IsValid() {
		return err
	}
	if o.PointToPoint && gateway.Is4() {
		if err := addRoute(link, netip.PrefixFrom(gateway, gateway.BitLen()), netip.Addr{}); err != nil {
			return err
		}
	}
	everywhere := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	if address.Is4() {
		everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return addRoute(link, everywhere, gateway)
}

// addRoute adds a route through a gateway, or a direct one when the gateway is invalid.
func addRoute(link netlink.Link, destination netip.Prefix, gateway netip.Addr) error {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(destination)}
	if gateway.IsValid() {
		route.Gw = gateway.AsSlice()
	} else if destination.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("adding the route to %s: %w", destination, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func noDetection(address netip.Prefix) int {
	if address.Addr().Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}
