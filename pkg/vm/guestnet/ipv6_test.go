package guestnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

func errorAs[T error](err error) (T, bool) {
	var target T
	return target, errors.As(err, &target)
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 seconds", what)
		}
	}
}

// addressByDHCPv6 lets the guest's kernel find its link-local address and its router, and then requests addresses and
// adds them.
func addressByDHCPv6(t *testing.T, guest *podnet.Guest, n *Network) *dhcpv6.Message {
	t.Helper()
	show := func() string { return guest.Run(t, "ip", "-6", "addr", "show", podnet.Interface) }
	await(t, "the link-local address", func() bool {
		return strings.Contains(show(), "inet6 fe80::") && !strings.Contains(show(), "tentative")
	})
	var client *nclient6.Client
	err := guest.Do(func() (err error) {
		client, err = nclient6.New(podnet.Interface)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	advertise, err := client.Solicit(ctx)
	if err != nil {
		t.Fatalf("soliciting: %s", err)
	}
	reply, err := client.Request(ctx, advertise)
	if err != nil {
		t.Fatalf("requesting: %s", err)
	}
	for _, address := range reply.Options.OneIANA().Options.Addresses() {
		guest.Run(t, "ip", "addr", "add", address.IPv6Addr.String()+"/128", "dev", podnet.Interface)
	}
	await(t, "no duplicate of the address", func() bool {
		return strings.Contains(show(), n.Address6.String()) && !strings.Contains(show(), "tentative")
	})
	if strings.Contains(show(), "dadfailed") {
		t.Errorf("the address has a duplicate: %s", show())
	}
	return reply
}

func TestGuestTakesItsPodsPlaceInIPv6(t *testing.T) {
	const viaLink = "default via fe80::ecee:eeff:feee:eeee proto ra"
	cases := map[string]struct {
		options podnet.PodOptions
		router  string // the default route
		subnet  string
	}{
		"on a bridge, with a gateway that has a global address": {
			options: podnet.PodOptions{IPv6: true}, router: "default via fe80::75:2 proto ra", subnet: "fd75::/64 proto kernel",
		},
		"without IPv4, on a bridge that sends frames back": {
			options: podnet.PodOptions{IPv6: true, NoIPv4: true, Hairpin: true}, router: "default via fe80::75:2 proto ra", subnet: "fd75::/64 proto kernel",
		},
		"on its own link, with a gateway that has a link-local address": {
			options: podnet.PodOptions{IPv6: true, PointToPoint: true, MTU: 1400}, router: viaLink,
		},
		"on a bridge without gateway": {
			options: podnet.PodOptions{IPv6: true, NoGateway: true}, subnet: "fd75::/64 proto kernel",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := podnet.NewHost(t)
			pod, other := host.NewPod(t, c.options), host.NewPod(t, c.options)
			n := takePod(t, pod)
			serve(t, n)
			guest := pod.NewGuest(t, n.Tap, n.MAC)
			reply := addressByDHCPv6(t, guest, n)
			if diff := cmp.Diff([]net.IP{resolver6.AsSlice()}, reply.Options.DNS()); diff != "" {
				t.Error(diff)
			}
			await(t, "the advertised routes", func() bool {
				routes := strings.Join(routesFrom(guest.Run(t, "ip", "-6", "route")), "\n")
				return strings.Contains(routes, c.router) && strings.Contains(routes, c.subnet) && (c.subnet != "" || !strings.Contains(routes, "fd75::/64"))
			})
			checkSysctl(t, guest, "mtu", pod.MTU)
			guest.Run(t, "ping", "-c1", "-W5", other.Address6.String())
			other.Run(t, "ping", "-c1", "-W5", pod.Address6.String())
			host.Run(t, "ping", "-c1", "-W5", pod.Address6.String())
			checkConnection(t, pod.Namespace, guest.Namespace, pod.Address6)
			if c.router != "" {
				checkBehindTheGateway(t, host, guest)
			}
		})
	}
}

// checkSysctl compares a value that the kernel took from an advertisement for the guest's card.
func checkSysctl(t *testing.T, guest *podnet.Guest, name string, want int) {
	t.Helper()
	path := "/proc/sys/net/ipv6/conf/" + podnet.Interface + "/" + name
	if got := strings.TrimSpace(guest.Run(t, "cat", path)); got != fmt.Sprint(want) {
		t.Errorf("%s is %s, want %d", path, got, want)
	}
}

// checkBehindTheGateway pings an address that is reached by the default route only.
func checkBehindTheGateway(t *testing.T, host *podnet.Host, guest *podnet.Guest) {
	t.Helper()
	far := netip.MustParseAddr("2001:db8::1")
	host.Run(t, "ip", "addr", "add", far.String()+"/128", "dev", "lo")
	// The kernel adds the route to an address some time after the address.
	guest.Run(t, "ping", "-c5", "-i0.2", "-W5", far.String())
}

func TestGuestNoticesThatItsGatewayHasAnotherMAC(t *testing.T) {
	t.Parallel()
	host := podnet.NewHost(t)
	pod := host.NewPod(t, podnet.PodOptions{IPv6: true})
	n := takePod(t, pod)
	serve(t, n)
	guest := pod.NewGuest(t, n.Tap, n.MAC)
	addressByDHCPv6(t, guest, n)
	await(t, "the router", func() bool { return strings.Contains(guest.Run(t, "ip", "-6", "route"), "default via") })
	checkBehindTheGateway(t, host, guest)
	host.Run(t, "ip", "link", "set", podnet.Bridge, "address", "02:00:00:00:00:77")
	guest.Run(t, "ip", "-6", "neigh", "flush", "dev", podnet.Interface)
	guest.Run(t, "ping", "-c1", "-W5", "2001:db8::1")
	if got := guest.Run(t, "ip", "-6", "neigh"); !strings.Contains(got, "fe80::75:2 dev eth0 lladdr 02:00:00:00:00:77 router") {
		t.Errorf("the guest does not know the gateway's MAC: %s", got)
	}
}
