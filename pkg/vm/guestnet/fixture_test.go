package guestnet

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

var (
	podMAC = MAC{0x02, 0x42, 0x0a, 0x4b, 0x00, 0x02}

	resolver  = netip.MustParseAddr("10.96.0.10")
	resolver6 = netip.MustParseAddr("fd96::a")
	clock     = netip.MustParseAddr("192.0.2.123")
	clock6    = netip.MustParseAddr("2001:db8::123")
)

// makeConfig returns the configuration of a pod from addresses, "10.75.0.2/24", and routes as ip(8) writes them,
// "10.75.0.0/24" and "0.0.0.0/0 via 10.75.0.1 metric 5 table 7 onlink".
func makeConfig(t testing.TB, addresses []string, routes ...string) Config {
	t.Helper()
	c := Config{Interface: podnet.Interface, MAC: podMAC, MTU: 1450}
	for _, address := range addresses {
		c.Addresses = append(c.Addresses, Address{Prefix: netip.MustParsePrefix(address)})
	}
	for _, route := range routes {
		words := strings.Fields(route)
		r := Route{Destination: netip.MustParsePrefix(words[0]), Table: mainTable}
		for i := 1; i < len(words); i += 2 {
			switch words[i] {
			case "via":
				r.Gateway = netip.MustParseAddr(words[i+1])
			case "metric":
				r.Priority = int(words[i+1][0] - '0')
			case "table":
				r.Table = int(words[i+1][0] - '0')
			default:
				t.Fatalf("%q: what is %s?", route, words[i])
			}
		}
		c.Routes = append(c.Routes, r)
	}
	return c
}

func testOptions() Options {
	return Options{
		Hostname: "worker-ab1c2", DNSServers: []netip.Addr{resolver, resolver6}, NTPServers: []netip.Addr{clock, clock6},
		SearchDomains: []string{"ab1c2.svc.cluster.local", "cluster.local"},
	}
}

// takePod takes over the network of a pod until the test has ended.
func takePod(t testing.TB, pod *podnet.Pod) *Network {
	t.Helper()
	o := testOptions()
	o.StateFile = filepath.Join(t.TempDir(), "network.json")
	n := mustTake(t, pod, o)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func mustTake(t testing.TB, pod *podnet.Pod, o Options) *Network {
	t.Helper()
	var n *Network
	err := pod.Do(func() (err error) {
		n, err = Take(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// serve serves the guest until the returned function is called, at the latest until the test has ended.
func serve(t testing.TB, n *Network) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serving the guest: %s", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
