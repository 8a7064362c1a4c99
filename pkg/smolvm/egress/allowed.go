package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// maxAllowed is how many networks a machine's list may have. Each connection is compared with all of them.
const maxAllowed = 1000

// ParseAllowed parses the networks that a machine's owner allows, such as 198.18.0.0/15, 8.8.8.8 or 2001:4860::/32. An
// address alone is a network of one. The owner may write anything: what is not exactly a network is an error, which
// says how the network would be written. The result is nil only if there are no texts.
func ParseAllowed(texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxAllowed {
		return nil, fmt.Errorf("parsing the allowed networks: there are %d, and %d may be", len(texts), maxAllowed)
	}
	var allowed []netip.Prefix
	for _, text := range texts {
		network, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("parsing the allowed network %.64q: %w", text, err)
		}
		allowed = append(allowed, network)
	}
	return allowed, nil
}

func parse(text string) (netip.Prefix, error) {
	network, zone, ok := read(text)
	if !ok {
		if network, _, ok := read(strings.TrimSpace(text)); ok {
			return netip.Prefix{}, fmt.Errorf("it has spaces around it; write %s", canonical(network))
		}
		return netip.Prefix{}, errors.New("it is not a network such as 198.51.100.0/24 or 2001:db8::/32")
	}
	plain, mapped := unmapped(network)
	switch {
	case zone:
		return netip.Prefix{}, fmt.Errorf("zones of addresses mean nothing to others; write %s", canonical(network))
	case mapped:
		return netip.Prefix{}, fmt.Errorf("it is an IPv4 network written as IPv6; write %s", canonical(plain))
	case network.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("it has IPv4 addresses written as IPv6; write %s for all of IPv4", netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	case network != network.Masked():
		return netip.Prefix{}, fmt.Errorf("it has bits set after the first %d; write %s", network.Bits(), canonical(network))
	}
	return network, nil
}

// maxText is more than any network needs, with a zone.
const maxText = 128

// read reads an address or a network, and reports whether it had a zone.
func read(text string) (network netip.Prefix, zone, ok bool) {
	if len(text) > maxText {
		return netip.Prefix{}, false, false
	}
	address, bits, isNetwork := strings.Cut(text, "/")
	if !isNetwork {
		address, err := netip.ParseAddr(text)
		return netip.PrefixFrom(address.WithZone(""), address.BitLen()), address.Zone() != "", err == nil
	}
	bare, _, zoned := strings.Cut(address, "%")
	network, err := netip.ParsePrefix(bare + "/" + bits)
	return network, zoned, err == nil
}

// canonical returns how a network is written.
func canonical(network netip.Prefix) netip.Prefix {
	if plain, ok := unmapped(network); ok {
		network = plain
	}
	return network.Masked()
}
