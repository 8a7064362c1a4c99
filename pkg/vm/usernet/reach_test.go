package usernet

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
)

// ownAddresses are the IPv4 addresses of the host, without those of its loopback.
func ownAddresses(t *testing.T) []netip.Addr {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own []netip.Addr
	for _, address := range addresses {
		if a := netip.MustParsePrefix(address.String()).Addr(); a.Is4() && !a.IsLoopback() {
			own = append(own, a)
		}
	}
	return own
}

// TestGuestThatScans: a guest with the strict floor and everything allowed by its owner tries what it must not reach, by
// TCP and UDP. It is refused at once, nothing arrives, and the events name each destination.
func TestGuestThatScans(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	datagrams, err := net.ListenPacket("udp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datagrams.Close() }()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	node := netip.MustParseAddr("8.8.4.4") // as if it had this address, too
	policy := egress.Policy{
		Floor: egress.FloorStrict, Outbound: true, Restricted: true, Own: []netip.Prefix{netip.PrefixFrom(node, 32)},
		Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.169.254/32")},
	}
	targets := []netip.AddrPort{
		netip.AddrPortFrom(localhost, port), netip.AddrPortFrom(netip.MustParseAddr("127.8.9.10"), port),
		netip.AddrPortFrom(node, 9443), netip.AddrPortFrom(node, 10250), netip.MustParseAddrPort("169.254.169.254:80"),
		netip.MustParseAddrPort("100.96.0.2:22"), netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("192.168.1.1:80"),
		netip.AddrPortFrom(gatewayIP, 9443), netip.AddrPortFrom(guestIP.Next(), 22),
	}
	for _, own := range ownAddresses(t) {
		targets = append(targets, netip.AddrPortFrom(own, 10250))
	}
	var events egress.Events
	g, _ := newGuest(t, func(o *Options) { o.Allow, o.Refused, o.loopback = policy.Allows, events.Refused, false })
	for _, to := range targets {
		began := time.Now()
		if conn, err := g.dial(t, to); err == nil {
			_ = conn.Close()
			t.Errorf("the guest is connected to %s", to)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the guest gets no answer about %s", to)
		}
		g.send(t, to, "anything there?")
	}
	eventually(t, "all refusals are known", func() bool { return len(events.Last(-1)) >= 2*len(targets) })
	text, err := json.Marshal(&events)
	if err != nil {
		t.Fatal(err)
	}
	var seen struct{ Events []egress.Event }
	if err := json.Unmarshal(text, &seen); err != nil {
		t.Fatal(err)
	}
	for _, to := range targets {
		for _, operation := range []string{"connect", "send"} {
			if !slices.ContainsFunc(seen.Events, func(e egress.Event) bool { return e.Operation == operation && e.Dest == to.String() && e.Reason != "" }) {
				t.Errorf("there is no event of %s to %s in %s", operation, to, text)
			}
		}
	}
	arrived(t, listener.(*net.TCPListener), datagrams)
}

// send sends a datagram of the guest.
func (g *guest) send(t *testing.T, to netip.AddrPort, text string) {
	t.Helper()
	address := full(to)
	conn, err := gonet.DialUDP(g.Stack, nil, &address, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte(text))
	_ = conn.Close()
}

// arrived fails if something has arrived at one of the sockets.
func arrived(t *testing.T, listener *net.TCPListener, datagrams net.PacketConn) {
	t.Helper()
	soon := time.Now().Add(50 * time.Millisecond)
	_, _ = listener.SetDeadline(soon), datagrams.SetDeadline(soon)
	if conn, err := listener.Accept(); err == nil {
		_ = conn.Close()
		t.Error("a connection of the guest has arrived")
	}
	if _, from, err := datagrams.ReadFrom(make([]byte, 64)); err == nil {
		t.Errorf("a datagram of the guest has arrived from %s", from)
	}
}

// TestPolicyIsAskedForWhatIsDialled: the address that is allowed is the one at which the connection arrives, and
// what is not allowed is not dialed.
func TestPolicyIsAskedForWhatIsDialled(t *testing.T) {
	var mu sync.Mutex
	asked := map[netip.AddrPort]int{}
	g, _ := newGuest(t, func(o *Options) {
		o.Allow = func(to netip.AddrPort) (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			asked[to]++
			return to.Addr().As4()[3] != 9, "it ends with 9"
		}
	})
	for _, text := range []string{"127.0.0.1", "127.3.4.5", "127.3.4.9"} {
		listener, err := net.Listen("tcp4", text+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		to, allowed := listener.Addr().(*net.TCPAddr).AddrPort(), text != "127.3.4.9"
		conn, err := g.dial(t, to)
		if (err == nil) != allowed {
			t.Fatalf("the guest dials %s: %v", to, err)
		}
		mu.Lock()
		if asked[to] != 1 {
			t.Errorf("the policy is asked %d times for %s, and all in all for %v", asked[to], to, asked)
		}
		mu.Unlock()
		_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
		arrived, err := listener.Accept()
		if (err == nil) != allowed {
			t.Errorf("a connection to %s arrives: %v", to, err == nil)
		}
		if err == nil {
			_, _ = arrived.Close(), conn.Close()
		}
	}
}

// TestAddressesThatTheHostGetsLater: what is an address of the host is found out when it is dialed.
func TestAddressesThatTheHostGetsLater(t *testing.T) {
	n, err := Open(optionsOf(func(o *Options) { o.Allow = anything }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	n.local = nil
	for _, own := range append(ownAddresses(t), localhost, netip.MustParseAddr("255.255.255.255")) {
		if reason := n.misrouted(netip.AddrPortFrom(own, 80)); reason == "" {
			t.Errorf("%s would be dialled", own)
		}
	}
	n.options.loopback = true
	if reason := n.misrouted(netip.AddrPortFrom(localhost, 80)); reason != "" {
		t.Errorf("an address that the tests need is not dialled: %s", reason)
	}
}

// TestHostCanBeReached: with ReachHost, the policy decides on the host's addresses, but not on the rest of what is this
// process.
func TestHostCanBeReached(t *testing.T) {
	host := netip.MustParseAddr("198.51.100.7")
	n, err := Open(optionsOf(func(o *Options) { o.Allow, o.ReachHost = anything, true }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	n.local[host] = true
	for address, want := range map[netip.Addr]bool{
		host: true, netip.MustParseAddr("8.8.8.8"): true, localhost: false, gatewayIP: false, guestIP: false,
	} {
		if reason := n.refusal(netip.AddrPortFrom(address, 80)); (reason == "") != want {
			t.Errorf("%s is reached: %q", address, reason)
		}
	}
	n.options.ReachHost = false
	if n.refusal(netip.AddrPortFrom(host, 80)) == "" {
		t.Error("the host is reached by default")
	}
}
