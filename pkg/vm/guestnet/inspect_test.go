package guestnet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

func inspectPod(t *testing.T, pod *podnet.Pod, name string) (Config, error) {
	t.Helper()
	var c Config
	err := pod.Do(func() (err error) {
		c, err = Inspect(name)
		return err
	})
	return c, err
}

// unusualPods are pods whose networks are hard to restore, with the commands that create them.
var unusualPods = map[string]struct {
	options podnet.PodOptions
	script  string
}{
	"a subnet that is behind the host, as the ptp plugin makes it": {script: `
		ip route del 10.75.0.0/24
		ip route add 10.75.0.1 dev eth0 src 10.75.0.2
		ip route add 10.75.0.0/24 via 10.75.0.1 src 10.75.0.2
		ip route replace default via 10.75.0.1`},
	"addresses of all kinds": {options: podnet.PodOptions{IPv6: true}, script: `
		ip addr add 10.75.0.200/24 brd + label eth0:more dev eth0
		ip addr add 172.16.0.1 peer 172.16.0.2/30 dev eth0
		ip addr add 172.17.0.1/16 noprefixroute dev eth0
		ip addr add 169.254.9.9/16 scope link dev eth0
		ip addr add fd99::1/64 noprefixroute nodad dev eth0`},
	"routes of all kinds": {options: podnet.PodOptions{IPv6: true}, script: `
		ip route add 172.16.0.0/12 via 10.75.0.9 metric 7 mtu 1300 advmss 1000
		ip route add 172.16.0.0/12 via 10.75.0.8 metric 8
		ip route add 192.0.2.0/24 via 198.51.100.1 dev eth0 onlink
		ip route add default via 10.75.0.1 table 7
		ip route add 10.75.0.1 dev eth0 table 7
		ip -6 route add fd99::/48 via fd75::9 metric 9 mtu 1300
		ip -6 route add fd98::/48 dev eth0 src fd75::2`},
	"without IPv6 in the kernel's settings":        {script: `echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6`},
	"with IPv6 on this interface only":             {options: podnet.PodOptions{IPv6: true}, script: `echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6`},
	"an MTU too small for IPv6":                    {script: `ip link set eth0 mtu 1000`},
	"link-local addresses that are random":         {script: `ip link set eth0 addrgenmode random`},
	"an alias":                                     {script: `ip link set eth0 alias "foreign"`},
	"a foreign filter":                             {script: `tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress pref 9 protocol ip u32 match ip dst 192.0.2.1/32 action mirred egress redirect dev lo`},
	"a jumbo MTU, and no broadcast address":        {options: podnet.PodOptions{MTU: 9000}, script: `ip addr del 10.75.0.2/24 dev eth0; ip addr add 10.75.0.2/24 dev eth0`},
	"an address, no gateway and no route whatever": {options: podnet.PodOptions{NoGateway: true}, script: `ip route del 10.75.0.0/24`},
}

func TestCloseGivesEverythingBack(t *testing.T) {
	for name, c := range unusualPods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podnet.NewHost(t).NewPod(t, c.options)
			pod.Run(t, "sh", "-ec", c.script)
			before, err := inspectPod(t, pod, "")
			if err != nil {
				t.Fatal(err)
			}
			looked := look(t, pod)
			n := mustTake(t, pod, Options{StateFile: filepath.Join(t.TempDir(), "state")})
			if addresses := pod.Run(t, "ip", "-o", "addr", "show", "dev", podnet.Interface); addresses != "" {
				t.Errorf("the interface still has %s", addresses)
			}
			for range 2 {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
			}
			after, err := inspectPod(t, pod, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after, compareAddresses); diff != "" {
				t.Errorf("Inspect: %s", diff)
			}
			if diff := cmp.Diff(looked, look(t, pod)); diff != "" {
				t.Errorf("ip and tc: %s", diff)
			}
		})
	}
}

func TestInspectSaysWhatItCannotHandOver(t *testing.T) {
	cases := map[string]struct {
		script string
		name   string
		want   error
	}{
		"no interface":                     {script: `ip link del eth0`, want: ErrNoInterface},
		"no address":                       {script: `ip addr flush dev eth0`, want: ErrNoInterface},
		"two interfaces, no default route": {script: `ip route del default; ip link add x1 type veth peer name x2; ip addr add 10.9.9.9/24 dev x1; ip link set x1 up; ip link set x2 up`, want: ErrNoInterface},
		"a host's bridge":                  {script: `ip link add br0 type bridge; ip link set br0 up; ip route replace default dev br0`, want: ErrUnsupported},
		"a device without driver":          {script: `ip route replace default dev lo`, want: ErrUnsupported},
		"an interface in a bridge":         {script: `ip link add br0 type bridge; ip link set eth0 master br0`, name: "eth0", want: ErrUnsupported},
		"several next hops":                {script: `ip route replace default nexthop via 10.75.0.1 nexthop via 10.75.0.9`, want: ErrUnsupported},
		"a gateway of the other family":    {script: `ip -4 route replace default via inet6 fe80::1 dev eth0`, want: ErrUnsupported},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
			pod.Run(t, "sh", "-ec", c.script)
			if got, err := inspectPod(t, pod, c.name); !errors.Is(err, c.want) {
				t.Errorf("got %v and the error %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestTakeThatFailsGivesEverythingBack(t *testing.T) {
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{IPv6: true})
	before := look(t, pod)
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{StateFile: filepath.Join(t.TempDir(), "state"), after: func(step string) {
		if step == "join the tap" {
			cancel()
		}
	}}
	err := pod.Do(func() error {
		_, err := Take(ctx, o)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want that of the context", err)
	}
	if diff := cmp.Diff(before, look(t, pod)); diff != "" {
		t.Error(diff)
	}
}

func TestStateFileCountsForItsOwnNamespaceOnly(t *testing.T) {
	host := podnet.NewHost(t)
	earlier, pod := host.NewPod(t, podnet.PodOptions{}), host.NewPod(t, podnet.PodOptions{})
	o := Options{StateFile: filepath.Join(t.TempDir(), "state")}
	mustTake(t, earlier, o)
	stateOfEarlier, err := os.ReadFile(o.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	n := mustTake(t, pod, o) // the same pod in a new sandbox
	if n.Address4 != pod.Address {
		t.Errorf("got %s, want %s", n.Address4, pod.Address)
	}
	take := func() error {
		return pod.Do(func() error {
			_, err := Take(t.Context(), o)
			return err
		})
	}
	for name, breakIt := range map[string]func() error{
		"gone":      func() error { return os.Remove(o.StateFile) },
		"another's": func() error { return os.WriteFile(o.StateFile, stateOfEarlier, 0o600) },
		"broken":    func() error { return os.WriteFile(o.StateFile, []byte("{"), 0o600) },
	} {
		if err := breakIt(); err != nil {
			t.Fatal(err)
		}
		if err := take(); !errors.Is(err, ErrLost) {
			t.Errorf("state that is %s: got the error %v, want %v", name, err, ErrLost)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := pod.Run(t, "ip", "-o", "-4", "addr", "show", podnet.Interface); !strings.Contains(got, pod.Address.String()) {
		t.Errorf("the pod does not have its address back: %s", got)
	}
}
