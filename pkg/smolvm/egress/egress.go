// Package egress decides which addresses a machine may reach, and remembers what was refused.
//
// A machine's packets leave from the node's own network, where NetworkPolicies do not apply. So the administrator sets a
// floor below which no owner of a machine gets: what the machine's own list allows is above the floor. The decision is
// made on the address that is dialed (pkg/vm/usernet); names play no part in it, so a name that is made to point at the
// node gains nothing.
//
// The floor is about addresses only. It does not know the addresses of other nodes: where nodes have addresses of the
// Internet, the administrator's firewall keeps machines from them.
package egress

import (
	"fmt"
	"net/netip"
)

// Floor says which addresses are refused whatever a machine's own list allows. The names are those of smolvm's
// SMOLVM_EGRESS_FLOOR. An unknown value counts as strict.
type Floor string

const (
	// FloorStrict refuses everything but addresses of the Internet: also private networks, shared address space, unique
	// local addresses, addresses for documentation, and reserved ones.
	FloorStrict Floor = "strict"
	// FloorMetadata refuses link-local addresses, the metadata services of clouds, and the node's own addresses.
	FloorMetadata Floor = "metadata"
	// FloorOff refuses only loopback, unspecified, multicast and broadcast addresses, as the others do. None of them can
	// be one host outside; with the network of the host, loopback and unspecified addresses are the node itself.
	FloorOff Floor = "off"
)

// ParseFloor returns the floor of a name. It returns an error for an unknown one; an empty one is strict.
func ParseFloor(text string) (Floor, error) {
	switch floor := Floor(text); floor {
	case FloorStrict, FloorMetadata, FloorOff:
		return floor, nil
	case "":
		return FloorStrict, nil
	}
	return "", fmt.Errorf("%q is not an egress floor: use %s, %s or %s", text, FloorStrict, FloorMetadata, FloorOff)
}

// classes are what a floor refuses unless there is an exception.
func (f Floor) classes() [][]class {
	switch f {
	case FloorOff:
		return nil
	case FloorMetadata:
		return [][]class{metadata}
	}
	return [][]class{metadata, strict}
}

// Policy is what one machine may reach. The zero value allows nothing.
type Policy struct {
	// Floor is the administrator's.
	Floor Floor
	// Exceptions are the administrator's, too: networks that the floor does not refuse. They do not open the node's own
	// addresses, or what FloorOff refuses: an exception is often wide, such as the LAN in which the node is itself.
	Exceptions []netip.Prefix
	// Own are the node's own addresses, each as a network of one address. They are refused unless the floor is off.
	Own []netip.Prefix
	// Outbound allows connections of the machine. Without it, the machine can only answer.
	Outbound bool
	// Allowed are the networks that the machine's owner wants it to reach. They count only if Restricted is set; an empty
	// list then allows nothing.
	Allowed    []netip.Prefix
	Restricted bool
}

// Allows reports whether the machine may open a connection to an address, or send to it; and if not, why. The reason
// has no parts that vary from address to address. An IPv6 address that has an IPv4 address in it (NAT64, 6to4, Teredo,
// IPv4-mapped) is refused if the IPv4 address is.
func (p Policy) Allows(to netip.AddrPort) (ok bool, reason string) {
	address := to.Addr()
	switch {
	case !p.Outbound:
		return false, "the machine's network is inbound only"
	case !address.IsValid() || address.Zone() != "" || to.Port() == 0:
		return false, "not the address of a host"
	}
	address = address.Unmap()
	if reason := p.refusal(address); reason != "" {
		return false, reason
	}
	if p.Restricted && !contains(p.Allowed, address) {
		return false, "not in the networks that are allowed"
	}
	return true, ""
}

// refusal returns why an address is below the floor, or nothing.
func (p Policy) refusal(address netip.Addr) string {
	all := forms(address)
	for _, form := range all {
		if name := find(never, form); name != "" {
			return name + " address"
		}
		if p.Floor != FloorOff && contains(p.Own, form) {
			return "address of the node"
		}
	}
	// An exception is for the address itself, because it says nothing about the translator.
	if contains(p.Exceptions, address) {
		return ""
	}
	for _, classes := range p.Floor.classes() {
		for _, form := range all {
			if name := find(classes, form); name != "" {
				return name + " address, below the egress floor"
			}
		}
	}
	if p.Floor != FloorOff && p.Floor != FloorMetadata && address.Is6() && !contains(unicast, address) {
		return "reserved address, below the egress floor"
	}
	return ""
}
