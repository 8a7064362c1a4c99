package guestnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressModeNone is IN6_ADDR_GEN_MODE_NONE: no link-local address is generated.
const addressModeNone = 1

// takeSteps complete a takeover of the pod's network from any of its states.
func (n *Network) takeSteps() []step {
	return []step{
		{"mark the interface", n.mark},        // from here on the state file is used
		{"filter the interface", n.filter},    // before there is anything that must stay inside
		{"empty the interface", n.empty},      // only the guest answers for the addresses
		{"rename the interface", n.changeMAC}, // its MAC is the guest's
		{"make the bridge", n.makeBridge},
		{"make the tap", n.makeTap},
		{"join the interface", func() error { return n.join(n.config.Interface) }},
		{"join the tap", func() error { return n.join(TapName) }},
		{"address the runner", n.addressRunner},
	}
}

func (n *Network) mark() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	mark, err := n.config.mark()
	if err != nil {
		return err
	}
	return n.handle.LinkSetAlias(uplink, mark)
}

func (n *Network) link(name string) (netlink.Link, error) {
	link, err := n.handle.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding the interface %s: %w", name, err)
	}
	return link, nil
}

// Sent returns how many packets the guest has sent since its tap device was created.
func (n *Network) Sent() (uint64, error) {
	link, err := n.link(n.Tap)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Statistics.RxPackets, nil
}

// empty removes addresses and routes, and prevents the kernel from generating a link-local address, because the guest
// derives the same one from the same MAC.
func (n *Network) empty() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	if err := n.setAddressMode(uplink, addressModeNone); err != nil {
		return err
	}
	if err := n.removeRoutes(uplink, nil); err != nil {
		return err
	}
	addresses, err := retry(func() ([]netlink.Addr, error) { return n.handle.AddrList(uplink, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, address := range addresses {
		if err := n.handle.AddrDel(uplink, &address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing the address %s: %w", address, err)
		}
	}
	return nil
}

// setAddressMode does nothing if the kernel has no IPv6.
func (n *Network) setAddressMode(link netlink.Link, mode int) error {
	if n.config.AddressMode == nil {
		return nil
	}
	if err := n.handle.LinkSetIP6AddrGenMode(link, mode); err != nil {
		return fmt.Errorf("setting the address mode of %s to %d: %w", link.Attrs().Name, mode, err)
	}
	return nil
}

func (n *Network) changeMAC() error {
	uplink, err := n.link(n.config.Interface)
	if err != nil {
		return err
	}
	return n.handle.LinkSetHardwareAddr(uplink, net.HardwareAddr(n.config.MAC.derive(n.config.Interface)))
}

func (n *Network) makeBridge() error {
	// Multicast frames go to both ports, regardless of what the guest has joined: the network behind the bridge
	// decides.
	snooping := false
	return n.ensure(&netlink.Bridge{LinkAttrs: n.attributes(BridgeName), MulticastSnooping: &snooping})
}

func (n *Network) makeTap() error {
	// A process that is started in the meantime would have the device open until its exec, and QEMU could not open it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return n.ensure(&netlink.Tuntap{
		LinkAttrs: n.attributes(TapName), Mode: netlink.TUNTAP_MODE_TAP,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	})
}

// attributes returns the settings of an interface of our own. Its MAC differs from the guest's and stays the same when
// ports come and go.
func (n *Network) attributes(name string) netlink.LinkAttrs {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU, attributes.HardwareAddr = name, n.config.MTU, net.HardwareAddr(n.config.MAC.derive(name))
	return attributes
}

// ensure creates an interface and sets its attributes, even if it existed already.
func (n *Network) ensure(want netlink.Link) error {
	name := want.Attrs().Name
	if err := n.handle.LinkAdd(want); err != nil && !errors.Is(err, unix.EEXIST) && !n.exists(name) {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	n.after("add " + name)
	link, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.setAddressMode(link, addressModeNone); err != nil {
		return err
	}
	if err := n.handle.LinkSetHardwareAddr(link, want.Attrs().HardwareAddr); err != nil {
		return fmt.Errorf("setting the MAC of %s: %w", name, err)
	}
	if err := n.handle.LinkSetMTU(link, want.Attrs().MTU); err != nil {
		return fmt.Errorf("setting the MTU of %s: %w", name, err)
	}
	if err := n.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// exists reports whether an interface exists. A tap that QEMU holds open results in EBUSY, not EEXIST.
func (n *Network) exists(name string) bool {
	_, err := n.handle.LinkByName(name)
	return err == nil
}

// join makes an interface a port of the bridge.
func (n *Network) join(name string) error {
	bridge, err := n.link(BridgeName)
	if err != nil {
		return err
	}
	port, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.handle.LinkSetMaster(port, bridge); err != nil {
		return err
	}
	return n.handle.LinkSetUp(port)
}

// addressRunner gives the bridge the runner's addresses and routes to the guest's.
func (n *Network) addressRunner() error {
	bridge, err := n.link(BridgeName)
	if err != nil {
		return err
	}
	for _, pair := range []struct{ runner, guest netip.Addr }{{RunnerAddress, n.Address4}, {RunnerAddress6, n.Address6}} {
		if !pair.guest.IsValid() {
			continue
		}
		if err := enable(pair.runner); err != nil {
			return err
		}
		if err := n.handle.AddrReplace(bridge, runnerAddress(pair.runner)); err != nil {
			return fmt.Errorf("adding the address %s: %w", pair.runner, err)
		}
		if err := n.handle.RouteReplace(routeToGuest(bridge, pair.runner, pair.guest)); err != nil {
			return fmt.Errorf("adding the route to %s: %w", pair.guest, err)
		}
	}
	return nil
}

// enable enables IPv6 for the bridge of a pod that has it enabled only for its own interface.
func enable(address netip.Addr) error {
	const path = "/proc/sys/net/ipv6/conf/" + BridgeName + "/disable_ipv6"
	if address.Is4() {
		return nil
	}
	switch value, err := os.ReadFile(path); {
	case err != nil:
		return fmt.Errorf("reading whether %s has IPv6: %w", BridgeName, err)
	case strings.TrimSpace(string(value)) == "0":
		return nil // it may not be writable
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		return fmt.Errorf("switching IPv6 on for %s: %w", BridgeName, err)
	}
	return nil
}

// runnerAddress returns the address for the kernel. In IPv4 it has no neighbors except the guest, to which there is a
// route, and in IPv6 it reaches the guest's link-local address. No other host can have this address, so that duplicate
// address detection is not needed.
func runnerAddress(address netip.Addr) *netlink.Addr {
	if address.Is6() {
		return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, 64)), Flags: unix.IFA_F_NODAD}
	}
	return &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, 32)), Scope: unix.RT_SCOPE_LINK}
}

func routeToGuest(bridge netlink.Link, runner, guest netip.Addr) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: bridge.Attrs().Index, Dst: ipNet(netip.PrefixFrom(guest, guest.BitLen())), Src: runner.AsSlice(),
	}
	if guest.Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}
