package guestnet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// networkd is the client of Flatcar and other distributions; Debian has it in the package systemd.
const networkd = "/lib/systemd/systemd-networkd"

// startNetworkd runs systemd-networkd in the guest and returns its directory /run. If its sysfs is read-only, networkd
// assumes that it is in a container and does not wait for udev. It is killed with its PID namespace, because it changes
// its user and so gets no signal when the test dies.
func startNetworkd(t *testing.T, guest *podnet.Guest) string {
	t.Helper()
	if _, err := os.Stat(networkd); err != nil {
		t.Fatalf("the test needs systemd-networkd: %s", err)
	}
	run := t.TempDir()
	if err := os.Chmod(run, 0o755); err != nil { // networkd is not root
		t.Fatal(err)
	}
	command := guest.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", `
		mount --bind "$1" /run
		mount -t sysfs -o ro sysfs /sys
		mkdir -p /run/systemd/network
		printf '[Match]\nName=eth0\n[Network]\nDHCP=yes\n[DHCPv4]\nUseMTU=yes\n' >/run/systemd/network/10-eth0.network
		"$2" & wait`, "sh", run, networkd)
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return run
}

func TestNetworkdConfiguresGuests(t *testing.T) {
	const runnerRoute = "169.254.75.1 proto dhcp scope link src 10.75.0.2 metric 1024 "
	cases := map[string]struct {
		options          podnet.PodOptions
		address, router6 string
		routes           []string
	}{
		"on a bridge": {
			options: podnet.PodOptions{IPv6: true, MTU: 1400}, address: "inet 10.75.0.2/24", router6: "default via fe80::75:2 proto ra",
			routes: []string{
				"10.75.0.0/24 proto kernel scope link src 10.75.0.2 metric 1024 ",
				"10.75.0.1 proto dhcp scope link src 10.75.0.2 metric 1024 ",
				"10.96.0.10 via 10.75.0.1 proto dhcp src 10.75.0.2 metric 1024 ", // networkd adds those to the servers
				runnerRoute,
				"192.0.2.123 via 10.75.0.1 proto dhcp src 10.75.0.2 metric 1024 ",
				"default via 10.75.0.1 proto dhcp src 10.75.0.2 metric 1024 ",
			},
		},
		"on its own link": {
			options: podnet.PodOptions{IPv6: true, MTU: 1400, PointToPoint: true}, address: "inet 10.75.0.2/32",
			router6: "default via fe80::ecee:eeff:feee:eeee proto ra",
			routes: []string{
				"10.96.0.10 via 169.254.1.1 proto dhcp src 10.75.0.2 metric 1024 ",
				"169.254.1.1 proto dhcp scope link src 10.75.0.2 metric 1024 ",
				runnerRoute,
				"192.0.2.123 via 169.254.1.1 proto dhcp src 10.75.0.2 metric 1024 ",
				"default via 169.254.1.1 proto dhcp src 10.75.0.2 metric 1024 ",
			},
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
			run := startNetworkd(t, guest)
			for _, want := range []string{c.address, "inet6 fd75::2/128", "mtu 1400 "} {
				await(t, want, func() bool { return strings.Contains(guest.Run(t, "ip", "addr", "show", podnet.Interface), want) })
			}
			await(t, c.router6, func() bool {
				return strings.Contains(strings.Join(routesFrom(guest.Run(t, "ip", "-6", "route")), "\n"), c.router6)
			})
			routes := func() []string { return routesFrom(guest.Run(t, "ip", "-4", "route")) }
			await(t, "all routes", func() bool { return len(routes()) >= len(c.routes) })
			if diff := cmp.Diff(c.routes, routes()); diff != "" {
				t.Error(diff)
			}
			lease := readLease(t, run)
			want := map[string]string{"DNS": "10.96.0.10", "NTP": "192.0.2.123", "HOSTNAME": "worker-ab1c2", "SERVER_ADDRESS": "169.254.75.1",
				"DOMAIN_SEARCH_LIST": "ab1c2.svc.cluster.local cluster.local"}
			for key, value := range want {
				if diff := cmp.Diff(value, lease[key]); diff != "" {
					t.Errorf("%s: %s", key, diff)
				}
			}
			checkReach(t, guest, pod, other.Namespace, other.Address)
		})
	}
}

// readLease parses the file in which networkd keeps a lease, one KEY=value per line.
func readLease(t *testing.T, run string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(run, "systemd/netif/leases/*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("networkd has the leases %v: %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lease := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		lease[key] = value
	}
	return lease
}
