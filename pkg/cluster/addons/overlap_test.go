package addons_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
)

// TestOverlappingNetworksAreNamed: the message names both, with what they are.
func TestOverlappingNetworksAreNamed(t *testing.T) {
	pods := func(cidr string) addons.Network { return addons.Network{Name: "the pod network", CIDR: cidr} }
	services := func(cidr string) addons.Network { return addons.Network{Name: "the network of Services", CIDR: cidr} }
	management := func(cidr string) addons.Network {
		return addons.Network{Name: "the pod network of the management cluster", CIDR: cidr}
	}
	type networks = []addons.Network
	for name, test := range map[string]struct {
		own, others networks
		want        string
	}{
		"all are apart": {networks{pods("192.168.0.0/16"), services("172.31.0.0/16")}, networks{management("10.244.0.0/16"), management("fd00::/48")}, ""},
		"neighbours":    {networks{pods("10.0.0.0/17")}, networks{management("10.0.128.0/17")}, ""},
		"the same":      {networks{pods("10.244.0.0/16")}, networks{management("10.244.0.0/16")}, "the pod network, 10.244.0.0/16, overlaps the pod network of the management cluster, 10.244.0.0/16; choose another one"},
		"within theirs": {networks{pods("10.244.8.0/24")}, networks{management("10.244.0.0/16")}, "the pod network, 10.244.8.0/24, overlaps the pod network of the management cluster, 10.244.0.0/16; choose another one"},
		"around theirs": {networks{services("10.0.0.0/8")}, networks{management("10.244.0.0/16")}, "the network of Services, 10.0.0.0/8, overlaps the pod network of the management cluster, 10.244.0.0/16; choose another one"},
		"written with an address of a host": {
			networks{pods("10.244.3.4/16")}, networks{management("10.244.5.6/16")}, "the pod network, 10.244.3.4/16, overlaps the pod network of the management cluster, 10.244.5.6/16; choose another one",
		},
		"IPv6":                    {networks{services("fd00::/108")}, networks{management("fd00::/48")}, "the network of Services, fd00::/108, overlaps the pod network of the management cluster, fd00::/48; choose another one"},
		"the second of theirs":    {networks{pods("10.1.0.0/16")}, networks{management("10.2.0.0/16"), management("10.1.0.0/16")}, "the pod network, 10.1.0.0/16, overlaps the pod network of the management cluster, 10.1.0.0/16; choose another one"},
		"one's own among another": {networks{pods("10.0.0.0/8"), services("10.1.0.0/16")}, nil, "the pod network, 10.0.0.0/8, overlaps the network of Services, 10.1.0.0/16; choose another one"},
		"unset networks":          {networks{pods("10.0.0.0/8")}, networks{management(""), management("x")}, ""},
		"theirs among another":    {networks{pods("192.168.0.0/16")}, networks{management("10.0.0.0/8"), management("10.0.0.0/8")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, addons.Overlap(test.own, test.others)); diff != "" {
				t.Errorf("another sentence (-want +got):\n%s", diff)
			}
		})
	}
}
