package guestnet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// configureByDHCP runs a DHCP client in the guest and returns what it prints.
func configureByDHCP(t *testing.T, guest *podnet.Guest) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := guest.CommandContext(ctx, "busybox", "udhcpc", "-i", podnet.Interface, "-f", "-q", "-n", "-t", "20", "-T", "1",
		"-O", "mtu", "-O", "staticroutes", "-O", "ntpsrv", "-s", "testdata/udhcpc.sh")
	output, err := client.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s\n%s", client, err, output)
	}
	return string(output)
}

func TestGuestTakesItsPodsPlace(t *testing.T) {
	const runnerRoute = "169.254.75.1 scope link "
	cases := map[string]struct {
		options podnet.PodOptions
		address string
		routes  []string
	}{
		"on a bridge": {
			address: "10.75.0.2/24",
			routes:  []string{"10.75.0.0/24 proto kernel scope link src 10.75.0.2 ", runnerRoute, "default via 10.75.0.1 "},
		},
		"on a bridge that sends frames back, with a small MTU": {
			options: podnet.PodOptions{Hairpin: true, MTU: 1400},
			address: "10.75.0.2/24",
			routes:  []string{"10.75.0.0/24 proto kernel scope link src 10.75.0.2 ", runnerRoute, "default via 10.75.0.1 "},
		},
		"on its own link, with a small MTU": {
			options: podnet.PodOptions{PointToPoint: true, MTU: 1400},
			address: "10.75.0.2/32",
			routes:  []string{"169.254.1.1 scope link ", runnerRoute, "default via 169.254.1.1 "},
		},
		"on a bridge without gateway": {
			options: podnet.PodOptions{NoGateway: true},
			address: "10.75.0.2/24",
			routes:  []string{"10.75.0.0/24 proto kernel scope link src 10.75.0.2 ", runnerRoute},
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
			told := configureByDHCP(t, guest)
			if want := "hostname worker-ab1c2 dns 10.96.0.10 ntp 192.0.2.123"; !strings.Contains(told, want) {
				t.Errorf("the client tells %q, want %q", told, want)
			}
			if want := "lease 4294967295 server 169.254.75.1"; !strings.Contains(told, want) {
				t.Errorf("the client tells %q, want %q", told, want)
			}
			link := guest.Run(t, "ip", "-4", "addr", "show", podnet.Interface)
			for _, want := range []string{fmt.Sprintf("mtu %d ", pod.MTU), "inet " + c.address} {
				if !strings.Contains(link, want) {
					t.Errorf("want %q: %s", want, link)
				}
			}
			if diff := cmp.Diff(c.routes, routesFrom(guest.Run(t, "ip", "-4", "route"))); diff != "" {
				t.Error(diff)
			}
			checkReach(t, guest, pod, other.Namespace, other.Address)
			host.Run(t, "ping", "-c1", "-W5", pod.Address.String())
			guest.Run(t, "ping", "-c1", "-W5", "-M", "do", "-s", fmt.Sprint(pod.MTU-28), other.Address.String())
		})
	}
}

// routesFrom returns the routes in the output of ip, in alphabetical order and without the interface.
func routesFrom(output string) []string {
	routes := strings.Split(strings.TrimRight(strings.ReplaceAll(output, "dev "+podnet.Interface+" ", ""), "\n"), "\n")
	slices.Sort(routes)
	return routes
}

// checkReach checks that the guest and a host with the address can ping each other, and that the runner and the guest
// can connect to each other.
func checkReach(t *testing.T, guest *podnet.Guest, pod *podnet.Pod, other *podnet.Namespace, address netip.Addr) {
	t.Helper()
	other.Run(t, "ping", "-c1", "-W5", pod.Address.String())
	guest.Run(t, "ping", "-c1", "-W5", address.String())
	checkConnection(t, pod.Namespace, guest.Namespace, pod.Address)
	checkConnection(t, guest.Namespace, pod.Namespace, RunnerAddress)
}

// checkConnection connects by TCP to an address in a namespace.
func checkConnection(t *testing.T, from, to *podnet.Namespace, address netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	listener, err := to.Listen(ctx, "tcp", net.JoinHostPort(address.String(), "0"))
	if err != nil {
		t.Fatalf("listening on %s: %s", address, err)
	}
	defer listener.Close()
	go func() {
		if connection, err := listener.Accept(); err == nil {
			fmt.Fprint(connection, "hello")
			connection.Close()
		}
	}()
	connection, err := from.Dial(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Errorf("connecting to %s: %s", address, err)
		return
	}
	defer connection.Close()
	if got, err := io.ReadAll(connection); err != nil || string(got) != "hello" {
		t.Errorf("read %q from %s: %v", got, address, err)
	}
}

func TestStrictKernelsReachEachOtherToo(t *testing.T) {
	t.Parallel()
	// The settings of a hardened guest, which a hardened host's pods may have as well.
	const strict = `for i in all default eth0; do
		echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter
		echo 1 >/proc/sys/net/ipv4/conf/$i/arp_ignore
		echo 2 >/proc/sys/net/ipv4/conf/$i/arp_announce
	done`
	host := podnet.NewHost(t)
	pod, other := host.NewPod(t, podnet.PodOptions{}), host.NewPod(t, podnet.PodOptions{})
	pod.Run(t, "sh", "-ec", strict)
	n := takePod(t, pod)
	serve(t, n)
	guest := pod.NewGuest(t, n.Tap, n.MAC)
	guest.Run(t, "sh", "-ec", strict)
	configureByDHCP(t, guest)
	checkReach(t, guest, pod, other.Namespace, other.Address)
}

func TestGuestLivesOnWhenTheRunnerIsReplaced(t *testing.T) {
	t.Parallel()
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
	o := testOptions()
	o.StateFile = filepath.Join(t.TempDir(), "state")
	n := mustTake(t, pod, o)
	stop := serve(t, n)
	guest := pod.NewGuest(t, n.Tap, n.MAC)
	configureByDHCP(t, guest)
	stop()

	next := mustTake(t, pod, o)
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	stop = serve(t, next)
	guest.Run(t, "ping", "-c1", "-W5", pod.Gateway.String())
	configureByDHCP(t, guest) // as after a reboot of the guest
	stop()
	serve(t, next)
	configureByDHCP(t, guest)
}

func TestGuestHearsItsFramesNotAgain(t *testing.T) {
	t.Parallel()
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{Hairpin: true})
	n := takePod(t, pod)
	serve(t, n)
	guest := pod.NewGuest(t, n.Tap, n.MAC)
	configureByDHCP(t, guest)
	onTap, onUplink := pod.Capture(t, n.Tap), pod.Capture(t, podnet.Interface)
	guest.Run(t, "ping", "-c1", "-W5", pod.Gateway.String())
	isQuestion := func(frame []byte) bool {
		return len(frame) >= 42 && slices.Equal(frame[:6], broadcastMAC) && slices.Equal(frame[12:14], []byte{8, 6}) &&
			slices.Equal(frame[38:42], pod.Gateway.AsSlice())
	}
	count := func(c *podnet.Capture) int {
		return len(slices.DeleteFunc(c.Frames(), func(f []byte) bool { return !isQuestion(f) }))
	}
	if got := count(onTap); got != 1 {
		t.Errorf("the guest's question for the gateway was %d times on the tap", got)
	}
	if got := count(onUplink); got != 2 {
		t.Errorf("the guest's question was %d times on the uplink: the bridge of the test sends nothing back", got)
	}
}
