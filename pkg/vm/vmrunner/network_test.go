package vmrunner

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

func TestCardsAreConnectedAsDeclared(t *testing.T) {
	m := vmconfig.Machine{Name: "a", Networks: []vmconfig.Network{
		{Type: vmconfig.NetworkTap, Bridge: "br0", MAC: "52:54:00:12:34:56"}, {Type: vmconfig.NetworkTap, Bridge: "br1", Device: "e1000"},
		{Type: vmconfig.NetworkUser, Net: "10.9.0.0/24"},
	}}
	tap := qemu.Network{Tap: "kvmtap0", TapDescriptor: 5, MTU: 9000, VHost: true, VHostDescriptor: 6}
	got, err := networks(m, map[int]qemu.Network{0: tap, 1: tap})
	if err != nil {
		t.Fatal(err)
	}
	want := []qemu.Network{
		{MAC: "52:54:00:12:34:56", Tap: "kvmtap0", TapDescriptor: 5, MTU: 9000, VHost: true, VHostDescriptor: 6},
		{MAC: macOf(m, 1), Model: "e1000", Tap: "kvmtap0", TapDescriptor: 5},
		// In the network of the host, the guest would reach the host's loopback address.
		{MAC: macOf(m, 2), User: &qemu.UserNetwork{Subnet: netip.MustParsePrefix("10.9.0.0/24"), Isolated: true}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("the cards differ (-want +got):\n%s", diff)
	}
}

// TestGuestsReachNoLoopbackOfTheHost: QEMU's own network is isolated where the pod is in the network of its host, or
// where the operator says so, and nowhere else.
func TestGuestsReachNoLoopbackOfTheHost(t *testing.T) {
	user, tap := vmconfig.Network{Type: vmconfig.NetworkUser}, vmconfig.Network{Type: vmconfig.NetworkTap, Bridge: "br0"}
	off := vmconfig.Network{Type: vmconfig.NetworkUser, Isolated: true}
	for _, test := range []struct {
		networks []vmconfig.Network
		isolated string
	}{
		{[]vmconfig.Network{user}, "n"},
		{[]vmconfig.Network{user, off}, "ny"},
		{[]vmconfig.Network{user, tap}, "yt"},
		{[]vmconfig.Network{tap, user, user}, "tyy"},
	} {
		s := example(t)
		s.Machine.Networks = test.networks
		found, err := networks(s.Machine, s.example().cards)
		if err != nil {
			t.Fatal(err)
		}
		var isolated strings.Builder
		for _, n := range found {
			switch {
			case n.User == nil:
				isolated.WriteByte('t')
			case n.User.Isolated:
				isolated.WriteByte('y')
			default:
				isolated.WriteByte('n')
			}
		}
		if isolated.String() != test.isolated {
			t.Errorf("%+v: isolated are %s, want %s", test.networks, isolated.String(), test.isolated)
		}
	}
}

// TestDisplayIsServedWhereNoGuestIs: a guest that has the address of the pod reaches no display, with or without a
// password.
func TestDisplayIsServedWhereNoGuestIs(t *testing.T) {
	for network, served := range map[string]bool{vmconfig.NetworkUser: true, vmconfig.NetworkPod: false} {
		s := example(t)
		s.Machine.Networks = []vmconfig.Network{{Type: network}}
		s.Machine.Display = &vmconfig.Display{Outputs: 1, SPICE: &vmconfig.SPICE{Port: 5900, Password: true}}
		if got := s.screen().SPICE.Address; got.IsValid() != served {
			t.Errorf("%s: the display is served at %s", network, got)
		}
	}
}

func TestMissingBridgeIsAFailureOfTheNetwork(t *testing.T) {
	s := example(t)
	s.Machine.Networks = []vmconfig.Network{{Type: vmconfig.NetworkTap, Bridge: "br-nowhere"}}
	err := prepare(t, s, func(ctx context.Context, p *preparation) error { return p.connectCards(ctx) })
	if end := keeper.EndOf(err); end.Reason != keeper.ReasonNetworkFailed || !strings.Contains(end.Message, "network 0: connecting the guest to the bridge br-nowhere") {
		t.Errorf("the runner ends with %+v", end)
	}
}
