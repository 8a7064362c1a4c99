package vitistack

import (
	"net"
	"net/netip"
	"slices"
)

const (
	// MostInterfaces is how many interfaces of a guest are shown at most. The guest decides how many it reports.
	MostInterfaces = 64
	// mostAddresses is how many addresses of an interface are shown at most.
	mostAddresses = 32
)

// Addresses returns the usable ones of the IP addresses that a guest or another operator reports, in their order and
// written in the canonical form: not those that are no addresses, repeated, unspecified, of the link, of the loopback
// interface, or of groups. IPv6 are those of them that are IPv6. There are 32 at most.
func Addresses(reported []string) (all, ipv6 []string) {
	for _, text := range reported {
		if len(all) == mostAddresses {
			break
		}
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			continue
		}
		address = address.Unmap()
		written := address.String()
		if !address.IsGlobalUnicast() || slices.Contains(all, written) {
			continue
		}
		all = append(all, written)
		if address.Is6() {
			ipv6 = append(ipv6, written)
		}
	}
	return all, ipv6
}

// CanonicalMAC returns a MAC address of 6 octets in lower case with colons, and false for other texts and for 00:00:00:00:00:00.
func CanonicalMAC(text string) (string, bool) {
	parsed, err := net.ParseMAC(text)
	if err != nil || len(parsed) != 6 || !slices.ContainsFunc(parsed, func(b byte) bool { return b != 0 }) {
		return "", false
	}
	return parsed.String(), true
}
