package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Which floors refuse an address.
const (
	always = iota
	metadataAndStrict
	strictOnly
	unlessOff // like metadataAndStrict, and no exception helps
	free
)

var own = []netip.Prefix{netip.MustParsePrefix("8.8.4.4/32"), netip.MustParsePrefix("2600:1900::1/128")}

// addresses has the first, the last and one other address of each class, and their neighbors outside.
var addresses = map[string]struct {
	refused int
	of      []string
}{
	"unspecified":  {always, []string{"0.0.0.0", "0.0.0.1", "0.255.255.255", "::"}},
	"loopback":     {always, []string{"127.0.0.0", "127.0.0.1", "127.8.9.10", "127.255.255.255", "::1"}},
	"multicast":    {always, []string{"224.0.0.0", "224.0.0.1", "239.255.255.255", "ff00::", "ff02::1", "ffff:ffff::1"}},
	"broadcast":    {always, []string{"255.255.255.255"}},
	"link-local":   {metadataAndStrict, []string{"169.254.0.0", "169.254.169.254", "169.254.170.2", "169.254.255.255", "fe80::", "fe80::a9fe:a9fe", "febf:ffff::1"}},
	"metadata":     {metadataAndStrict, []string{"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "192.0.0.192", "100.100.100.200", "168.63.129.16"}},
	"the node":     {unlessOff, []string{"8.8.4.4", "2600:1900::1"}},
	"private":      {strictOnly, []string{"10.0.0.0", "10.96.0.1", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"}},
	"unique local": {strictOnly, []string{"fc00::", "fd12:3456::1", "fdff:ffff::1", "fec0::1"}},
	"shared":       {strictOnly, []string{"100.64.0.0", "100.96.0.2", "100.127.255.255"}},
	"for documentation": {strictOnly, []string{
		"192.0.2.0", "192.0.2.255", "198.51.100.7", "203.0.113.255", "2001:db8::1", "3fff::1",
	}},
	"reserved": {strictOnly, []string{
		"240.0.0.0", "255.255.255.254", "192.0.0.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "100::1", "2001:20::1", "5f00::1", "4000::1", "::ffff:0:808:808",
	}},
	"local NAT64":                    {metadataAndStrict, []string{"64:ff9b:1::1", "64:ff9b:1:ffff::808:808"}},
	"loopback in other forms":        {always, []string{"::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "::ffff:0:127.0.0.1", "2001:0:1:2:3:4:80ff:fffe"}},
	"multicast in other forms":       {always, []string{"::ffff:224.0.0.1", "64:ff9b::e000:1", "2002:e000:1::1"}},
	"link-local in other forms":      {metadataAndStrict, []string{"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001::5601:5601"}},
	"metadata in other forms":        {metadataAndStrict, []string{"::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:6464:64c8::"}},
	"the node in other forms":        {unlessOff, []string{"::ffff:8.8.4.4", "64:ff9b::808:404", "2002:808:404::1", "2001::f7f7:fbfb"}},
	"private in other forms":         {strictOnly, []string{"::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "2002:c0a8:101::1"}},
	"shared in other forms":          {strictOnly, []string{"::ffff:100.96.0.2", "64:ff9b::6460:2", "2002:6460:2::"}},
	"reserved in other forms":        {strictOnly, []string{"::ffff:240.0.0.1", "64:ff9b::f000:1", "2002:f000:1::"}},
	"the Internet":                   {free, []string{"1.1.1.1", "8.8.8.8", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"}},
	"the Internet in other forms":    {free, []string{"::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"}},
	"outside, below and above a net": {free, []string{"1.0.0.0", "9.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "100.63.255.255", "100.128.0.0"}},
}

// TestEveryClassWithEveryPolicy decides on each address with each floor, and with and without outbound connections,
// a list of the owner that has the address, one that does not, an empty one, and exceptions.
func TestEveryClassWithEveryPolicy(t *testing.T) {
	decided := 0
	for name, test := range addresses {
		for _, text := range test.of {
			to := netip.AddrPortFrom(netip.MustParseAddr(text), 443)
			for _, policy := range policies(to.Addr()) {
				want := policy.Outbound && !refusedByFloor(test.refused, policy) && (!policy.Restricted || holds(policy.Allowed, to.Addr()))
				got, reason := policy.Allows(to)
				if got != want || got != (reason == "") {
					t.Errorf("%s: %s with %+v is allowed: %v (%q)", name, text, policy, got, reason)
				}
				decided++
			}
		}
	}
	t.Logf("%d decisions", decided)
}

func policies(address netip.Addr) []Policy {
	itself, other := netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), netip.MustParsePrefix("198.41.0.4/32")
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	var all []Policy
	for _, floor := range []Floor{FloorStrict, FloorMetadata, FloorOff, "", "unknown"} {
		for _, outbound := range []bool{true, false} {
			for _, exceptions := range [][]netip.Prefix{nil, {other}, {itself}, everything} {
				for _, allowed := range [][]netip.Prefix{nil, {}, {other}, {itself}, everything} {
					for _, restricted := range []bool{true, false} {
						all = append(all, Policy{
							Floor: floor, Outbound: outbound, Exceptions: exceptions, Own: own, Allowed: allowed, Restricted: restricted,
						})
					}
				}
			}
		}
	}
	return all
}

func refusedByFloor(refused int, p Policy) bool {
	excepted := len(p.Exceptions) > 0 && p.Exceptions[0] != netip.MustParsePrefix("198.41.0.4/32")
	switch refused {
	case always:
		return true
	case unlessOff:
		return p.Floor != FloorOff
	case metadataAndStrict:
		return p.Floor != FloorOff && !excepted
	case strictOnly:
		return p.Floor != FloorOff && p.Floor != FloorMetadata && !excepted
	}
	return false
}

func holds(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address.Unmap()) })
}

func TestNotOneHost(t *testing.T) {
	for name, to := range map[string]netip.AddrPort{
		"no address":  {},
		"no port":     netip.MustParseAddrPort("8.8.8.8:0"),
		"with a zone": netip.MustParseAddrPort("[2606:4700::1%eth0]:443"),
	} {
		if ok, _ := (Policy{Floor: FloorOff, Outbound: true}).Allows(to); ok {
			t.Errorf("%s: %s is allowed", name, to)
		}
	}
	if ok, _ := (Policy{}).Allows(netip.MustParseAddrPort("8.8.8.8:443")); ok {
		t.Error("the zero policy allows something")
	}
}

// TestNetworksOfMappedAddresses: administrators may write their networks in this form, and they must count.
func TestNetworksOfMappedAddresses(t *testing.T) {
	p := Policy{Floor: FloorMetadata, Outbound: true, Own: []netip.Prefix{netip.MustParsePrefix("::ffff:9.9.9.9/128")}}
	if ok, _ := p.Allows(netip.MustParseAddrPort("9.9.9.9:53")); ok {
		t.Error("the node's own address is allowed")
	}
}

func TestFloorsAreReadByName(t *testing.T) {
	for text, want := range map[string]Floor{"": FloorStrict, "strict": FloorStrict, "metadata": FloorMetadata, "off": FloorOff} {
		if got, err := ParseFloor(text); got != want || err != nil {
			t.Errorf("%q is read as %q (%v)", text, got, err)
		}
	}
	for _, text := range []string{"none", "Strict", " off"} {
		if got, err := ParseFloor(text); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

// insideFloor says independently of the tables, with the standard library's words, that an address must never be
// allowed by the strict floor.
func insideFloor(address netip.Addr) bool {
	if address.IsLoopback() || address.IsUnspecified() || address.IsMulticast() || address.IsPrivate() ||
		address.IsLinkLocalUnicast() || address.IsInterfaceLocalMulticast() {
		return true
	}
	if address.Is4() {
		n := binary.BigEndian.Uint32(address.AsSlice())
		return n>>22 == 0x64400000>>22 || n>>28 >= 0xe || n>>24 == 0
	}
	bytes := address.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(bytes[at : at+4])) }
	switch {
	case address.Is4In6():
		return insideFloor(address.Unmap())
	case binary.BigEndian.Uint16(bytes[:]) == 0x2002:
		return insideFloor(v4(2))
	case strings.HasPrefix(address.StringExpanded(), "0064:ff9b:0000:0000:0000:0000:"):
		return insideFloor(v4(12))
	}
	return false
}

// FuzzNothingBelowTheFloorIsAllowed: no list of the owner opens an address below the floor.
func FuzzNothingBelowTheFloorIsAllowed(f *testing.F) {
	for _, test := range addresses {
		for _, text := range test.of {
			address := netip.MustParseAddr(text)
			f.Add(address.AsSlice(), address.AsSlice(), 0, uint16(443), true)
			f.Add(address.AsSlice(), address.AsSlice(), address.BitLen(), uint16(53), false)
		}
	}
	f.Fuzz(func(t *testing.T, raw, network []byte, bits int, port uint16, restricted bool) {
		address, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		p := Policy{Floor: FloorStrict, Own: own, Outbound: true, Restricted: restricted}
		if base, ok := netip.AddrFromSlice(network); ok {
			p.Allowed = append(p.Allowed, netip.PrefixFrom(base, bits))
		}
		p.Allowed = append(p.Allowed, netip.PrefixFrom(address, 0), netip.PrefixFrom(address, address.BitLen()))
		strict, reason := p.Allows(netip.AddrPortFrom(address, port))
		if strict && (insideFloor(address) || slices.Contains([]string{"8.8.4.4", "2600:1900::1"}, address.Unmap().String())) {
			t.Errorf("%s is allowed", address)
		}
		if strict != (reason == "") {
			t.Errorf("%s is allowed: %v, with the reason %q", address, strict, reason)
		}
		// A lower floor allows what a higher one does, and the lowest one nothing that could be the node by itself.
		p.Floor = FloorMetadata
		lower, _ := p.Allows(netip.AddrPortFrom(address, port))
		p.Floor = FloorOff
		lowest, _ := p.Allows(netip.AddrPortFrom(address, port))
		if strict && !lower || lower && !lowest {
			t.Errorf("%s is allowed by the floors strict %v, metadata %v, off %v", address, strict, lower, lowest)
		}
		if plain := address.Unmap(); lowest && (plain.IsLoopback() || plain.IsUnspecified() || plain.IsMulticast()) {
			t.Errorf("%s is allowed without a floor", address)
		}
	})
}

func ExamplePolicy_Allows() {
	p := Policy{Floor: FloorStrict, Outbound: true, Restricted: true, Allowed: prefixes("10.0.0.0/8", "1.1.1.0/24")}
	for _, to := range []string{"1.1.1.1:53", "8.8.8.8:53", "10.96.0.1:443"} {
		ok, reason := p.Allows(netip.MustParseAddrPort(to))
		fmt.Printf("%v %q\n", ok, reason)
	}
	// Output:
	// true ""
	// false "not in the networks that are allowed"
	// false "private address, below the egress floor"
}
