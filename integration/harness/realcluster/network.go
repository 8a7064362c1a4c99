package realcluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// All values of the network are fixed because no one else uses it.
const (
	bridge        = "nodes"
	nodeInterface = "eth0"
	allPods       = "10.244.0.0/16"
)

var siteAddress = netip.MustParseAddr("10.10.0.1")

// nodeAddress returns the address of the node with a number, from 1.
func nodeAddress(number int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.10.0.%d", 10+number))
}

// podNetwork returns the network of the node's pods.
func podNetwork(number int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number))
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// makeBridge sets up the thread's network namespace as that of the control plane.
func makeBridge() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridge
	link := &netlink.Bridge{LinkAttrs: attributes}
	return errors.Join(forward(), setUp("lo"), netlink.LinkAdd(link), addAddress(link, siteAddress), netlink.LinkSetUp(link))
}

// plugIn connects the network namespace of a process, which is that of a node, to the bridge in the thread's namespace,
// and adds the route to the node's pods there.
func plugIn(number, pid int) error {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = nodeName(number), link.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: nodeInterface, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return err
	}
	return addRoute(podNetwork(number).String(), nodeAddress(number))
}

// unplug reverses plugIn. When a namespace ends, the kernel does this only after some time.
func unplug(number int) error {
	link, err := netlink.LinkByName(nodeName(number))
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	return err
}

// setUpNode sets up the thread's namespace, which is that of a node, with its address and the routes to other nodes'
// pods.
func setUpNode(number, nodes int) error {
	link, err := netlink.LinkByName(nodeInterface)
	if err != nil {
		return err
	}
	err = errors.Join(forward(), setUp("lo"), addAddress(link, nodeAddress(number)), netlink.LinkSetUp(link), addRoute("0.0.0.0/0", siteAddress))
	for other := 1; other <= nodes; other++ {
		if other != number && err == nil {
			err = addRoute(podNetwork(other).String(), nodeAddress(other))
		}
	}
	return err
}

func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) }

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func addAddress(link netlink.Link, address netip.Addr) error {
	network := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: network}); err != nil {
		return fmt.Errorf("adding the address %s: %w", address, err)
	}
	return nil
}

// addRoute adds a route or replaces the existing one, because routes to a node's pods outlive the node.
func addRoute(destination string, by netip.Addr) error {
	_, network, err := net.ParseCIDR(destination)
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(&netlink.Route{Dst: network, Gw: by.AsSlice()}); err != nil {
		return fmt.Errorf("adding the route to %s by %s: %w", destination, by, err)
	}
	return nil
}
