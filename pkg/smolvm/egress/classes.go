package egress

import (
	"net/netip"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudmetadata"
)

// class is a kind of addresses that a floor may refuse.
type class struct {
	name     string
	prefixes []netip.Prefix
}

// never are addresses that cannot be one host outside: with the network of the host, most of them are the node itself.
// No floor and no exception allows them.
var never = []class{
	{"loopback", prefixes("127.0.0.0/8", "::1/128")},
	{"unspecified", prefixes("0.0.0.0/8", "::/128")}, // RFC 1122, section 3.2.1.3: "this network"; Linux connects to itself
	{"broadcast", prefixes("255.255.255.255/32")},
	{"multicast", prefixes("224.0.0.0/4", "ff00::/8")},
}

// metadata are the services of clouds that hand out credentials of the node, and link-local addresses, which most of
// these services have.
var metadata = []class{
	{"link-local", prefixes(cloudmetadata.LinkLocal, "fe80::/10")},
	{"metadata", prefixes(cloudmetadata.Networks...)},
	{"local NAT64", prefixes("64:ff9b:1::/48")}, // RFC 8215: it is not known where the IPv4 address is in it
}

// strict are networks that the node may reach and the Internet does not: those of the cluster, its services, its LAN.
// The list follows the special-purpose registries of IANA (RFC 6890).
var strict = []class{
	{"private", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")},
	{"shared", prefixes("100.64.0.0/10")}, // RFC 6598; guests themselves have addresses of it
	{"documentation", prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")},
	{"reserved", prefixes(
		"192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4",
		"::/96", "100::/64", "100:0:0:1::/64", "2001::/23", "5f00::/16",
	)},
}

// unicast are the IPv6 addresses of hosts on the Internet, and those that NAT64 makes of IPv4 addresses. The strict
// floor refuses all others, because what they will be used for is not known.
var unicast = prefixes("2000::/3", "64:ff9b::/96")

// embedding says where IPv6 addresses have an IPv4 address.
type embedding struct {
	prefix netip.Prefix
	at     int
	// inverted addresses have each bit flipped.
	inverted bool
}

var embeddings = []embedding{
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), at: 12},              // NAT64, RFC 6052
	{prefix: netip.MustParsePrefix("2002::/16"), at: 2},                  // 6to4, RFC 3056
	{prefix: netip.MustParsePrefix("2001::/32"), at: 12, inverted: true}, // Teredo, RFC 4380
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), at: 12},           // SIIT, RFC 2765
	{prefix: netip.MustParsePrefix("::/96"), at: 12},                     // IPv4-compatible, RFC 4291, section 2.5.5.1
}

// forms returns the address, and the IPv4 address that is in it.
func forms(address netip.Addr) []netip.Addr {
	all := []netip.Addr{address}
	for _, e := range embeddings {
		if !e.prefix.Contains(address) {
			continue
		}
		bytes := address.As16()
		inner := [4]byte(bytes[e.at : e.at+4])
		if e.inverted {
			for i := range inner {
				inner[i] = ^inner[i]
			}
		}
		all = append(all, netip.AddrFrom4(inner))
	}
	return all
}

// find returns the first class of which an address is, or nothing.
func find(classes []class, address netip.Addr) string {
	for _, c := range classes {
		if contains(c.prefixes, address) {
			return c.name
		}
	}
	return ""
}

// contains reports whether an address is in one of the networks. Networks of IPv4-mapped addresses count as those of
// IPv4.
func contains(networks []netip.Prefix, address netip.Addr) bool {
	for _, network := range networks {
		if plain, ok := unmapped(network); ok {
			network = plain
		}
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// unmapped returns the IPv4 network that a network of IPv4-mapped addresses stands for.
func unmapped(network netip.Prefix) (netip.Prefix, bool) {
	const mapped = 96 // RFC 4291, section 2.5.5.2
	if !network.Addr().Is4In6() || network.Bits() < mapped {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mapped), true
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
