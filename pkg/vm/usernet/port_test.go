package usernet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

var localhost = netip.MustParseAddr("127.0.0.1")

// unused returns a port that nothing listens to.
func unused(t *testing.T) uint16 {
	t.Helper()
	free, address := listen(t)
	_ = free.Close()
	return address.Port()
}

func TestPortsAreReadAsTheyAreWritten(t *testing.T) {
	for _, port := range []Port{SamePort(TCP, 1), SamePort(UDP, 65535)} {
		if got, err := ParsePort(port.String()); got != port || err != nil {
			t.Errorf("%s is read as %s (%v)", port, got, err)
		}
	}
	for _, text := range []string{"", "443", "tcp:", "tcp:0", "tcp:65536", "sctp:1", "tcp:-1", "tcp:1:2"} {
		if _, err := ParsePort(text); err == nil {
			t.Errorf("%q is a port", text)
		}
	}
	if got := (Port{Protocol: TCP, Host: 18080, Guest: 80}).String(); got != "tcp:18080:80" {
		t.Errorf("a port with two numbers is written as %s", got)
	}
}

func TestPortsThatCannotBePublished(t *testing.T) {
	other := netip.MustParseAddr("127.0.0.2")
	for name, test := range map[string]struct {
		listen  netip.Addr
		ports   []Port
		problem string
	}{
		"different numbers":                    {ports: []Port{{Protocol: TCP, Host: 18080, Guest: 80}, {Protocol: TCP, Host: 18081, Guest: 80}}},
		"both protocols":                       {ports: []Port{SamePort(TCP, 53), SamePort(UDP, 53)}},
		"a number at two addresses":            {ports: []Port{{Protocol: TCP, Listen: localhost, Host: 80, Guest: 80}, {Protocol: TCP, Listen: other, Host: 80, Guest: 81}}},
		"no number on the host":                {ports: []Port{{Protocol: TCP, Guest: 80}}, problem: "the number 0"},
		"no number in the guest":               {ports: []Port{{Protocol: TCP, Host: 80}}, problem: "the number 0"},
		"another protocol":                     {ports: []Port{SamePort("sctp", 80)}, problem: "neither"},
		"the same number twice":                {ports: []Port{{Protocol: UDP, Host: 80, Guest: 80}, {Protocol: UDP, Host: 80, Guest: 81}}, problem: "published twice"},
		"an address, and all":                  {ports: []Port{{Protocol: TCP, Listen: localhost, Host: 80, Guest: 80}, SamePort(TCP, 80)}, problem: "published twice"},
		"an address, and the same by default":  {listen: localhost, ports: []Port{{Protocol: TCP, Listen: localhost, Host: 80, Guest: 80}, SamePort(TCP, 80)}, problem: "published twice"},
		"an address, and another by default":   {listen: other, ports: []Port{{Protocol: TCP, Listen: localhost, Host: 80, Guest: 80}, SamePort(TCP, 80)}},
		"an IPv6 address":                      {ports: []Port{{Protocol: TCP, Listen: netip.IPv6Loopback(), Host: 80, Guest: 80}}, problem: "not an IPv4 address"},
		"an IPv6 address for all of the ports": {listen: netip.IPv6Unspecified(), ports: []Port{SamePort(TCP, 80)}, problem: "not an IPv4 address"},
	} {
		err := CheckPorts(test.listen, test.ports)
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v", name, err)
		}
		if test.problem == "" {
			continue
		}
		if n, err := Open(optionsOf(func(o *Options) { o.Listen, o.Ports = test.listen, test.ports })); err == nil {
			t.Errorf("%s: the ports are published", name)
			_ = n.Close()
		}
	}
}

func optionsOf(change func(*Options)) Options {
	o := Options{MAC: guestMAC, Address: guestIP, Gateway: gatewayIP, GatewayMAC: gatewayMAC, MTU: 1450, Listen: localhost}
	if change != nil {
		change(&o)
	}
	return o
}

// TestPortsThatAreTaken: the error names the port, and the ports that were free are free again.
func TestPortsThatAreTaken(t *testing.T) {
	_, taken := listen(t)
	datagrams, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = datagrams.Close() })
	takenUDP := datagrams.LocalAddr().(*net.UDPAddr).AddrPort()
	for name, want := range map[string]PortInUseError{
		"connections": {Protocol: TCP, Address: localhost, Port: taken.Port()},
		"datagrams":   {Protocol: UDP, Address: localhost, Port: takenUDP.Port()},
	} {
		free := unused(t)
		_, err := Open(optionsOf(func(o *Options) {
			o.Ports = []Port{SamePort(TCP, free), SamePort(UDP, free), {Protocol: want.Protocol, Host: want.Port, Guest: 80}}
		}))
		got := new(PortInUseError)
		if !errors.As(err, &got) || *got != want || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprintf("%s:%d", want.Protocol, want.Port)) {
			t.Errorf("%s: opening gives %v", name, err)
		}
		n, err := Open(optionsOf(func(o *Options) { o.Ports = []Port{SamePort(TCP, free), SamePort(UDP, free)} }))
		if err != nil {
			t.Fatalf("%s: the ports that were free are not given back: %v", name, err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPortsWithTwoNumbers: the host's port differs from the guest's, and each has its own address.
func TestPortsWithTwoNumbers(t *testing.T) {
	one, other := unused(t), unused(t)
	elsewhere := netip.MustParseAddr("127.0.0.2")
	g, n := newGuest(t, func(o *Options) {
		o.Ports = []Port{
			{Protocol: TCP, Host: one, Guest: 80}, {Protocol: TCP, Listen: elsewhere, Host: other, Guest: 80},
			{Protocol: UDP, Host: one, Guest: 53},
		}
	})
	inside, err := gonet.ListenTCP(g.Stack, n.guest(80), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, inside)
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(localhost, one), netip.AddrPortFrom(elsewhere, other)} {
		conn, err := net.DialTimeout("tcp4", at.String(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if answer := say(t, conn, "hello"); !strings.HasSuffix(answer, "\nhello") {
			t.Errorf("at %s the guest answers %q", at, answer)
		}
	}
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(elsewhere, one), netip.AddrPortFrom(localhost, other)} {
		if conn, err := net.DialTimeout("tcp4", at.String(), 5*time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("the guest's port is published at %s, too", at)
		}
	}

	served := n.guest(53)
	names, err := gonet.DialUDP(g.Stack, &served, nil, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("udp4", netip.AddrPortFrom(localhost, one).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if answer := exchange(t, client, names, "what is the time?"); answer != "what is the time?" {
		t.Errorf("the guest answers %q", answer)
	}
}

// TestPortsAreOpenBeforeTheGuest: Open alone takes the ports, and a client that comes too early gets an error within seconds.
func TestPortsAreOpenBeforeTheGuest(t *testing.T) {
	port := unused(t)
	n, err := Open(optionsOf(func(o *Options) { o.Ports = []Port{{Protocol: TCP, Host: port, Guest: 80}} }))
	if err != nil {
		t.Fatal(err)
	}
	early, err := net.DialTimeout("tcp4", netip.AddrPortFrom(localhost, port).String(), 5*time.Second)
	if err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	_ = early.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := early.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("a client that came too early gets %v", err)
	}
	_ = early.Close()
}
