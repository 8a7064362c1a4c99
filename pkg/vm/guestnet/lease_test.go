package guestnet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLeaseSaysWhatThePodHas(t *testing.T) {
	const runner = "169.254.75.1/32 by 0.0.0.0"
	cases := map[string]struct {
		addresses, routes []string
		address, gateway  string
		want              []string
	}{
		"a pod of a bridge plugin": {
			addresses: []string{"10.75.0.2/24"},
			routes:    []string{"0.0.0.0/0 via 10.75.0.1", "10.75.0.0/24"},
			address:   "10.75.0.2/24", gateway: "10.75.0.1",
			want: []string{runner, "0.0.0.0/0 by 10.75.0.1"},
		},
		"a pod of Calico: no subnet, and the gateway is on the link": {
			addresses: []string{"192.168.3.7/32"},
			routes:    []string{"0.0.0.0/0 via 169.254.1.1", "169.254.1.1/32"},
			address:   "192.168.3.7/32", gateway: "169.254.1.1",
			want: []string{runner, "169.254.1.1/32 by 0.0.0.0", "0.0.0.0/0 by 169.254.1.1"},
		},
		"a pod of the ptp plugin: a subnet that is behind the host": {
			addresses: []string{"10.1.2.3/24"},
			routes:    []string{"0.0.0.0/0 via 10.1.2.1", "10.1.2.0/24 via 10.1.2.1", "10.1.2.1/32"},
			address:   "10.1.2.3/32", gateway: "10.1.2.1",
			want: []string{runner, "10.1.2.1/32 by 0.0.0.0", "0.0.0.0/0 by 10.1.2.1", "10.1.2.0/24 by 10.1.2.1"},
		},
		"a gateway that only the flag onlink makes a neighbour": {
			addresses: []string{"10.1.2.3/32"},
			routes:    []string{"0.0.0.0/0 via 10.9.9.9"},
			address:   "10.1.2.3/32", gateway: "10.9.9.9",
			want: []string{runner, "10.9.9.9/32 by 0.0.0.0", "0.0.0.0/0 by 10.9.9.9"},
		},
		"no gateway": {
			addresses: []string{"10.75.0.2/24"}, routes: []string{"10.75.0.0/24"},
			address: "10.75.0.2/24", want: []string{runner},
		},
		"nothing but an address": {
			addresses: []string{"10.75.0.2/24"}, address: "10.75.0.2/32", want: []string{runner},
		},
		"a default route without gateway": {
			addresses: []string{"10.1.2.3/32"}, routes: []string{"0.0.0.0/0"},
			address: "10.1.2.3/32", want: []string{runner, "0.0.0.0/0 by 0.0.0.0"},
		},
		"several routes to a destination: the preferred one; other tables: none": {
			addresses: []string{"10.75.0.2/24", "10.75.9.9/24"},
			routes: []string{
				"0.0.0.0/0 via 10.75.0.9 metric 9", "0.0.0.0/0 via 10.75.0.1 metric 1", "0.0.0.0/0 via 10.75.0.7 table 7",
				"10.75.0.0/24", "172.16.0.0/12 via 10.75.0.8",
			},
			address: "10.75.0.2/24", gateway: "10.75.0.1",
			want: []string{runner, "172.16.0.0/12 by 10.75.0.8", "0.0.0.0/0 by 10.75.0.1"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			lease, ok := leaseOf(makeConfig(t, c.addresses, c.routes...))
			if !ok {
				t.Fatal("there is no lease")
			}
			got := []string{lease.address.String(), lease.gateway.String()}
			for _, route := range lease.routes {
				got = append(got, fmt.Sprintf("%s by %s", route.destination, route.gateway))
			}
			if c.gateway == "" {
				c.gateway = netip.Addr{}.String()
			}
			if diff := cmp.Diff(append([]string{c.address, c.gateway}, c.want...), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPodWithoutIPv4HasNoLease(t *testing.T) {
	if lease, ok := leaseOf(makeConfig(t, []string{"fd75::2/64"})); ok {
		t.Errorf("got %v", lease)
	}
}

func TestMACsOfOneGuestDifferAndAreStable(t *testing.T) {
	seen := map[string]bool{podMAC.String(): true}
	for _, role := range []string{"eth0", BridgeName, TapName} {
		derived := podMAC.derive(role)
		if derived[0]&3 != 2 {
			t.Errorf("%s: %s is not a locally administered unicast address", role, derived)
		}
		if seen[derived.String()] {
			t.Errorf("%s: %s is another's", role, derived)
		}
		seen[derived.String()] = true
		if again := podMAC.derive(role); again.String() != derived.String() {
			t.Errorf("%s: %s and then %s", role, derived, again)
		}
	}
}
