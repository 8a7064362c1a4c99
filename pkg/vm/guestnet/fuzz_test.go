package guestnet

import (
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/mdlayher/ndp"
)

func fuzzServer(t testing.TB) *server {
	return newServer(makeConfig(t, []string{"10.75.0.2/24", "fd75::2/64"},
		"0.0.0.0/0 via 10.75.0.1", "10.75.0.0/24", "::/0 via fd75::1", "fd75::/64"), testOptions())
}

// checkAnswers fails if an answer cannot be parsed again or is not for the guest.
func checkAnswers(t *testing.T, a answers) {
	t.Helper()
	for _, p := range append(a.toGuest, a.toNetwork...) {
		if _, ok := parsePacket(p.frame()); !ok {
			t.Errorf("the answer %v is no packet", p)
		}
	}
}

// FuzzDHCP sends any payload to the port of DHCP servers.
func FuzzDHCP(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform} {
		f.Add(request(f, kind, wants("10.75.0.2"), dhcpv4.WithRequestedOptions(optionClasslessRoutesMicrosoft)).ToBytes())
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, payload []byte) { checkAnswers(t, s.fromGuest(dhcpFrame(podMAC, payload))) })
}

// FuzzDHCPv6 sends any payload to the port of DHCPv6 servers.
func FuzzDHCPv6(f *testing.F) {
	s := fuzzServer(f)
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRebind, dhcpv6.MessageTypeConfirm} {
		f.Add(request6(kind, identity(1, "fd75::2"), delegation(2)).ToBytes())
	}
	f.Add(request6(dhcpv6.MessageTypeRenew, identity(1, "fd75::9"), dhcpv6.WithServerID(s.duid())).ToBytes())
	f.Fuzz(func(t *testing.T, payload []byte) { checkAnswers(t, s.fromGuest(dhcpv6Frame(payload))) })
}

// FuzzFrame lets the guest and the network send any frame.
func FuzzFrame(f *testing.F) {
	f.Add(dhcpFrame(podMAC, request(f, dhcpv4.MessageTypeDiscover).ToBytes()))
	f.Add(dhcpv6Frame(request6(dhcpv6.MessageTypeSolicit, identity(1)).ToBytes()))
	f.Add(arpFrame(podMAC, "10.75.0.2", "169.254.75.1"))
	for _, message := range []ndp.Message{
		&ndp.RouterSolicitation{},
		&ndp.NeighborSolicitation{TargetAddress: netip.MustParseAddr("fe80::75:2")},
		&ndp.NeighborAdvertisement{TargetAddress: netip.MustParseAddr("fd75::1")},
	} {
		f.Add(solicitationFrame(f, message, allNodes))
	}
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		checkAnswers(t, s.fromGuest(frame))
		checkAnswers(t, s.fromNetwork(frame))
	})
}
