package guestnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoInterface says that no interface of the namespace can be the pod's: none has a default route, and not exactly
// one besides lo has a global address.
var ErrNoInterface = errors.New("no interface of a pod")

// ErrUnsupported says that the pod's network has something that cannot be handed over to a guest.
var ErrUnsupported = errors.New("not supported")

// Inspect reads the configuration of the pod whose network namespace the calling thread is in. The interface is the one
// with the default route, otherwise the only one besides lo with a global address; a non-empty name overrides that.
//
// It returns ErrNoInterface, or ErrUnsupported for an interface that is not a veth and was not named (most likely the
// namespace is the host's), for an interface in another bridge, and for routes with several next hops, with an
// encapsulation or with a gateway of the other family.
func Inspect(name string) (Config, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Config{}, fmt.Errorf("opening rtnetlink: %w", err)
	}
	defer handle.Close()
	return inspect(handle, name)
}

func inspect(handle *netlink.Handle, name string) (Config, error) {
	link, err := findUplink(handle, name)
	if err != nil {
		return Config{}, err
	}
	attributes := link.Attrs()
	c := Config{
		Interface: attributes.Name, MAC: MAC(attributes.HardwareAddr), MTU: attributes.MTU, Alias: attributes.Alias,
	}
	if c.AddressMode, err = addressMode(c.Interface); err != nil {
		return Config{}, err
	}
	if c.Clsact, err = hasClsact(handle, link); err != nil {
		return Config{}, err
	}
	if c.Addresses, err = addressesOf(handle, link); err != nil {
		return Config{}, err
	}
	c.Routes, err = routesOf(handle, link)
	return c, err
}

// findUplink finds the pod's interface.
func findUplink(handle *netlink.Handle, name string) (netlink.Link, error) {
	named := name != ""
	if !named {
		var err error
		if name, err = nameOfUplink(handle); err != nil {
			return nil, err
		}
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding the interface %s: %w", name, err)
	}
	switch {
	case len(link.Attrs().HardwareAddr) != 6:
		return nil, fmt.Errorf("interface %s: no Ethernet address: %w", name, ErrUnsupported)
	case link.Attrs().MasterIndex != 0:
		return nil, fmt.Errorf("interface %s: part of another bridge: %w", name, ErrUnsupported)
	case link.Type() != "veth" && !named:
		return nil, fmt.Errorf("interface %s: no veth but a %s, as in a host's namespace; name it to take it anyway: %w", name, link.Type(), ErrUnsupported)
	}
	return link, nil
}

func nameOfUplink(handle *netlink.Handle) (string, error) {
	index, err := indexOfDefaultRoute(handle)
	if err != nil {
		return "", err
	}
	links, err := handle.LinkList()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	var candidates []string
	for _, link := range links {
		if link.Attrs().Index == index {
			return link.Attrs().Name, nil
		}
		addresses, err := addressesOf(handle, link)
		if err != nil {
			return "", err
		}
		global := slices.ContainsFunc(addresses, func(a Address) bool { return a.Scope == 0 })
		if global && link.Attrs().Flags&net.FlagLoopback == 0 {
			candidates = append(candidates, link.Attrs().Name)
		}
	}
	if len(candidates) != 1 {
		return "", fmt.Errorf("no default route and not one interface with a global address but %d: %w", len(candidates), ErrNoInterface)
	}
	return candidates[0], nil
}

// indexOfDefaultRoute returns the interface of the best default route, preferring IPv4 to IPv6; 0 if there is none.
func indexOfDefaultRoute(handle *netlink.Handle) (int, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := listRoutes(handle, family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return 0, err
		}
		routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !isDefault(r) || r.Type != unix.RTN_UNICAST })
		if len(routes) != 0 {
			best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
			return linkIndex(best), nil
		}
	}
	return 0, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// linkIndex returns the interface of a route, or of its first next hop.
func linkIndex(r netlink.Route) int {
	if len(r.MultiPath) != 0 {
		return r.MultiPath[0].LinkIndex
	}
	return r.LinkIndex
}

// addressMode reads how link-local addresses are generated. It reads /proc, because the netlink package decodes no
// message with it.
func addressMode(name string) (*int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/addr_gen_mode")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a kernel without IPv6 has no mode, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading the address mode of %s: %w", name, err)
	}
	mode, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("reading the address mode of %s: %w", name, err)
	}
	return &mode, nil
}

func hasClsact(handle *netlink.Handle, link netlink.Link) (bool, error) {
	qdiscs, err := handle.QdiscList(link)
	if err != nil {
		return false, fmt.Errorf("listing the qdiscs of %s: %w", link.Attrs().Name, err)
	}
	return slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" }), nil
}

func addressesOf(handle *netlink.Handle, link netlink.Link) ([]Address, error) {
	listed, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
	}
	addresses := make([]Address, 0, len(listed))
	for _, a := range listed {
		addresses = append(addresses, Address{
			Prefix: prefixOf(a.IPNet), Peer: prefixOf(a.Peer), Broadcast: addrOf(a.Broadcast), Label: a.Label,
			Scope: a.Scope, NoPrefixRoute: a.Flags&unix.IFA_F_NOPREFIXROUTE != 0,
		})
	}
	return addresses, nil
}

// retry lists again if the list changed while the kernel dumped it.
func retry[T any](list func() (T, error)) (listed T, err error) {
	for range 10 {
		if listed, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return listed, err
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), ones)
}

func addrOf(ip net.IP) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
