package guestnet

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/ndp"
)

var compareAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func solicitationFrame(t testing.TB, message ndp.Message, target netip.Addr) []byte {
	t.Helper()
	p, ok := packet{sourceMAC: net.HardwareAddr(podMAC), targetMAC: multicastMAC(target), source: guestLink, target: target}.withNDP(message)
	if !ok {
		t.Fatalf("%v cannot be sent", message)
	}
	return p.frame()
}

func TestRoutersAreAdvertisedUnderLinkLocalAddresses(t *testing.T) {
	options := func(more ...ndp.Option) []ndp.Option {
		return append([]ndp.Option{ndp.NewMTU(1450)}, append(more, &ndp.RecursiveDNSServer{
			Lifetime: 9000 * time.Second, Servers: []netip.Addr{resolver6},
		}, &ndp.DNSSearchList{
			Lifetime: 9000 * time.Second, DomainNames: []string{"ab1c2.svc.cluster.local", "cluster.local"},
		})...)
	}
	subnet := &ndp.PrefixInformation{
		PrefixLength: 64, OnLink: true, Prefix: netip.MustParseAddr("fd75::"), ValidLifetime: forever, PreferredLifetime: forever,
	}
	behind := &ndp.RouteInformation{PrefixLength: 48, Prefix: netip.MustParseAddr("fd99::"), RouteLifetime: 9000 * time.Second}
	cases := map[string]struct {
		addresses, routes []string
		want              map[string]ndp.RouterAdvertisement // by source
	}{
		"a gateway with a link-local address is known by it": {
			addresses: []string{"fd75::2/128"}, routes: []string{"::/0 via fe80::1", "fd75::2/128"},
			want: map[string]ndp.RouterAdvertisement{"fe80::1": {RouterLifetime: routerLifetime, Options: options()}},
		},
		"a gateway with a global address gets an alias": {
			addresses: []string{"fd75::2/64"}, routes: []string{"::/0 via fd75::1", "fd75::/64"},
			want: map[string]ndp.RouterAdvertisement{"fe80::75:2": {RouterLifetime: routerLifetime, Options: options(subnet)}},
		},
		"routes by another gateway": {
			addresses: []string{"fd75::2/64"}, routes: []string{"::/0 via fd75::1", "fd99::/48 via fd75::9", "fd75::/64"},
			want: map[string]ndp.RouterAdvertisement{
				"fe80::75:2": {RouterLifetime: routerLifetime, Options: options(subnet)},
				"fe80::75:3": {Options: options(subnet, behind)},
			},
		},
		"no gateway: no router, but an address": {
			addresses: []string{"fd75::2/64"}, routes: []string{"fd75::/64", "fe80::/64"},
			want: map[string]ndp.RouterAdvertisement{"fe80::75:1": {Options: options(subnet)}},
		},
		"no IPv6": {addresses: []string{"10.75.0.2/24", "fe80::2/64"}, want: map[string]ndp.RouterAdvertisement{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := makeConfig(t, c.addresses, c.routes...)
			for i := range config.Addresses {
				if config.Addresses[i].Prefix.Addr().IsLinkLocalUnicast() {
					config.Addresses[i].Scope = 253
				}
			}
			s := newServer(config, testOptions())
			got := map[string]ndp.RouterAdvertisement{}
			for _, p := range s.fromGuest(solicitationFrame(t, &ndp.RouterSolicitation{}, netip.MustParseAddr("ff02::2"))).toGuest {
				got[p.source.String()] = *parse[*ndp.RouterAdvertisement](t, p)
			}
			for source, ra := range c.want {
				ra.CurrentHopLimit, ra.ManagedConfiguration, ra.OtherConfiguration = 64, true, true
				c.want[source] = ra
			}
			if diff := cmp.Diff(c.want, got, compareAddresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// parse parses a packet as it comes from the wire; the checksum is verified.
func parse[T ndp.Message](t *testing.T, p packet) T {
	t.Helper()
	p, ok := parsePacket(p.frame())
	if !ok {
		t.Fatal("the frame has no packet")
	}
	pseudo := append(append(p.source.AsSlice(), p.target.AsSlice()...), 0, 0, byte(len(p.payload)>>8), byte(len(p.payload)), 0, 0, 0, protocolICMPv6)
	if sum := checksum(append(pseudo, p.payload...)); sum != 0 {
		t.Errorf("the checksum is wrong by %#x", sum)
	}
	message, ok := p.parseNDP()
	if !ok {
		t.Fatal("the packet has no message of neighbour discovery")
	}
	got, ok := message.(T)
	if !ok {
		t.Fatalf("the packet is a %T", message)
	}
	return got
}

func TestGatewayAnswersForItsAlias(t *testing.T) {
	gatewayMAC := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	gateway, alias := netip.MustParseAddr("fd75::1"), netip.MustParseAddr("fe80::75:2")
	s := newServer(makeConfig(t, []string{"fd75::2/64"}, "::/0 via fd75::1", "fd75::/64"), testOptions())

	asked := s.fromGuest(solicitationFrame(t, &ndp.NeighborSolicitation{TargetAddress: alias}, netip.MustParseAddr("ff02::1:ff75:2")))
	if len(asked.toNetwork) != 1 || len(asked.toGuest) != 0 {
		t.Fatalf("got %v, want one packet to the network", asked)
	}
	want := &ndp.NeighborSolicitation{
		TargetAddress: gateway, Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr(podMAC)}},
	}
	if diff := cmp.Diff(want, parse[*ndp.NeighborSolicitation](t, asked.toNetwork[0]), compareAddresses); diff != "" {
		t.Error(diff)
	}
	if got := asked.toNetwork[0]; got.source != s.addresses6[0] || got.target.String() != "ff02::1:ff00:1" || got.targetMAC.String() != "33:33:ff:00:00:01" {
		t.Errorf("the solicitation goes from %s to %s (%s)", got.source, got.target, got.targetMAC)
	}

	for name, options := range map[string][]ndp.Option{
		"with its MAC in it": {&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: gatewayMAC}},
		"without":            nil,
	} {
		t.Run(name, func(t *testing.T) {
			answer, ok := packet{sourceMAC: gatewayMAC, targetMAC: net.HardwareAddr(podMAC), source: gateway, target: s.addresses6[0]}.withNDP(
				&ndp.NeighborAdvertisement{Solicited: true, Override: true, TargetAddress: gateway, Options: options})
			if !ok {
				t.Fatal("cannot write the gateway's answer")
			}
			told := s.fromNetwork(answer.frame())
			if len(told.toGuest) != 1 || len(told.toNetwork) != 0 {
				t.Fatalf("got %v, want one packet to the guest", told)
			}
			want := &ndp.NeighborAdvertisement{
				Router: true, Solicited: true, Override: true, TargetAddress: alias,
				Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: gatewayMAC}},
			}
			if diff := cmp.Diff(want, parse[*ndp.NeighborAdvertisement](t, told.toGuest[0]), compareAddresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyAliasesAreTranslated(t *testing.T) {
	linkLocal := newServer(makeConfig(t, []string{"fd75::2/64"}, "::/0 via fe80::1", "fd75::/64"), testOptions())
	global := newServer(makeConfig(t, []string{"fd75::2/64"}, "::/0 via fd75::1", "fd75::/64"), testOptions())
	if linkLocal.translates() || !global.translates() {
		t.Errorf("translates: %t with a link-local gateway, %t with a global one", linkLocal.translates(), global.translates())
	}
	for target, s := range map[string]*server{"fe80::75:1": global, "fe80::75:3": global, "fd75::1": global, "fe80::1": linkLocal} {
		frame := solicitationFrame(t, &ndp.NeighborSolicitation{TargetAddress: netip.MustParseAddr(target)}, allNodes)
		if got := s.fromGuest(frame); len(got.toGuest)+len(got.toNetwork) != 0 {
			t.Errorf("%s: got %v", target, got)
		}
	}
	stranger, ok := packet{sourceMAC: broadcastMAC, targetMAC: allNodesMAC, source: allNodes, target: allNodes}.withNDP(
		&ndp.NeighborAdvertisement{TargetAddress: netip.MustParseAddr("fd75::9")})
	if got := global.fromNetwork(stranger.frame()); !ok || len(got.toGuest)+len(got.toNetwork) != 0 {
		t.Errorf("another's advertisement is passed on: %v", got)
	}
}
