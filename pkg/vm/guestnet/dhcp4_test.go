package guestnet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var transaction = dhcpv4.TransactionID{1, 2, 3, 4}

func request(t testing.TB, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	request, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithTransactionID(transaction), dhcpv4.WithHwAddr(net.HardwareAddr(podMAC)), dhcpv4.WithMessageType(kind),
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func wants(address string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(address)))
}

func from(server string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(server)))
}

func has(address string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(address)) }

// dhcpFrame returns the frame in which a client without an address sends a message.
func dhcpFrame(sender MAC, message []byte) []byte {
	p := packet{sourceMAC: net.HardwareAddr(sender), targetMAC: broadcastMAC, source: netip.IPv4Unspecified(), target: broadcast, hopLimit: hopLimit}
	return p.withUDP(datagram{sourcePort: portDHCPClient, targetPort: portDHCPServer, payload: message}).frame()
}

// reply sends a request to the server and parses the reply; nil if there is none.
func reply(t *testing.T, s *server, sender MAC, request *dhcpv4.DHCPv4) (packet, *dhcpv4.DHCPv4) {
	t.Helper()
	got := s.fromGuest(dhcpFrame(sender, request.ToBytes()))
	if len(got.toNetwork) != 0 {
		t.Errorf("%d packets went to the network", len(got.toNetwork))
	}
	if len(got.toGuest) == 0 {
		return packet{}, nil
	}
	p, ok := parsePacket(got.toGuest[0].frame())
	if !ok {
		t.Fatal("the answer is no packet")
	}
	d, ok := p.parseUDP()
	if !ok || d.sourcePort != portDHCPServer || d.targetPort != portDHCPClient {
		t.Fatalf("the answer is no DHCP: %v", d)
	}
	message, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return p, message
}

func TestRequestsAreAnsweredAsRFC2131Says(t *testing.T) {
	cases := map[string]struct {
		sender  MAC
		request *dhcpv4.DHCPv4
		kind    dhcpv4.MessageType // none: no answer
		address string             // yiaddr
		target  string
	}{
		"DISCOVER": {request: request(t, dhcpv4.MessageTypeDiscover), kind: dhcpv4.MessageTypeOffer, address: "10.75.0.2", target: "10.75.0.2"},
		"DISCOVER of a client that cannot be reached by its address yet": {
			request: request(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true)),
			kind:    dhcpv4.MessageTypeOffer, address: "10.75.0.2", target: "255.255.255.255",
		},
		"DISCOVER that wants another address": {
			request: request(t, dhcpv4.MessageTypeDiscover, wants("10.75.0.99")),
			kind:    dhcpv4.MessageTypeOffer, address: "10.75.0.2", target: "10.75.0.2",
		},
		"REQUEST for the offer": {
			request: request(t, dhcpv4.MessageTypeRequest, from("169.254.75.1"), wants("10.75.0.2")),
			kind:    dhcpv4.MessageTypeAck, address: "10.75.0.2", target: "10.75.0.2",
		},
		"REQUEST for the offer of another server": {
			request: request(t, dhcpv4.MessageTypeRequest, from("10.75.0.1"), wants("10.75.0.2")),
		},
		"REQUEST after a reboot": {
			request: request(t, dhcpv4.MessageTypeRequest, wants("10.75.0.2")), kind: dhcpv4.MessageTypeAck,
			address: "10.75.0.2", target: "10.75.0.2",
		},
		"REQUEST after a reboot with the address of an earlier pod": {
			request: request(t, dhcpv4.MessageTypeRequest, wants("10.75.0.99")), kind: dhcpv4.MessageTypeNak,
			address: "0.0.0.0", target: "255.255.255.255",
		},
		"REQUEST that renews": {
			request: request(t, dhcpv4.MessageTypeRequest, has("10.75.0.2")), kind: dhcpv4.MessageTypeAck,
			address: "10.75.0.2", target: "10.75.0.2",
		},
		"REQUEST that renews the address of an earlier pod": {
			request: request(t, dhcpv4.MessageTypeRequest, has("10.75.0.99")), kind: dhcpv4.MessageTypeNak,
			address: "0.0.0.0", target: "255.255.255.255",
		},
		"REQUEST for nothing": {request: request(t, dhcpv4.MessageTypeRequest)},
		"INFORM": {
			request: request(t, dhcpv4.MessageTypeInform, has("10.75.0.2")), kind: dhcpv4.MessageTypeAck,
			address: "0.0.0.0", target: "10.75.0.2",
		},
		"DECLINE": {request: request(t, dhcpv4.MessageTypeDecline, from("169.254.75.1"), wants("10.75.0.2"))},
		"RELEASE": {request: request(t, dhcpv4.MessageTypeRelease, from("169.254.75.1"), has("10.75.0.2"))},
		"a reply": {request: request(t, dhcpv4.MessageTypeDiscover, func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply })},
		"DISCOVER by a relay": {
			request: request(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithRelay(net.IPv4(10, 0, 0, 1))),
		},
		"DISCOVER for another's MAC": {
			request: request(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})),
		},
		"DISCOVER by another's MAC": {sender: MAC{2, 0, 0, 0, 0, 9}, request: request(t, dhcpv4.MessageTypeDiscover)},
	}
	s := newServer(makeConfig(t, []string{"10.75.0.2/24"}, "0.0.0.0/0 via 10.75.0.1", "10.75.0.0/24"), testOptions())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.sender == nil {
				c.sender = podMAC
			}
			p, got := reply(t, s, c.sender, c.request)
			if got == nil {
				if c.kind != dhcpv4.MessageTypeNone {
					t.Errorf("no answer, want %s", c.kind)
				}
				return
			}
			want := []string{c.kind.String(), c.address, c.target, "169.254.75.1", "169.254.75.1", transaction.String(), podMAC.String()}
			if diff := cmp.Diff(want, []string{
				got.MessageType().String(), got.YourIPAddr.String(), p.target.String(), p.source.String(),
				got.ServerIdentifier().String(), got.TransactionID.String(), got.ClientHWAddr.String(),
			}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOfferHasEverything(t *testing.T) {
	s := newServer(makeConfig(t, []string{"192.168.3.7/32"}, "0.0.0.0/0 via 169.254.1.1", "169.254.1.1/32"), testOptions())
	_, got := reply(t, s, podMAC, request(t, dhcpv4.MessageTypeDiscover,
		dhcpv4.WithRequestedOptions(optionClasslessRoutesMicrosoft),
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2, 3})),
	))
	routes := []byte{
		32, 169, 254, 75, 1, 0, 0, 0, 0, // the runner on the link
		32, 169, 254, 1, 1, 0, 0, 0, 0, // the gateway on the link
		0, 169, 254, 1, 1, // everything through the gateway
	}
	want := dhcpv4.Options{
		1: {255, 255, 255, 255}, 3: {169, 254, 1, 1}, 6: {10, 96, 0, 10}, 12: []byte("worker-ab1c2"),
		26: {1450 >> 8, 1450 & 0xff}, 42: {192, 0, 2, 123}, 51: {0xff, 0xff, 0xff, 0xff}, 53: {2}, 54: {169, 254, 75, 1},
		61: {1, 2, 3}, 119: []byte("\x05ab1c2\x03svc\x07cluster\x05local\x00\x07cluster\x05local\x00"), 121: routes, 249: routes,
	}
	if diff := cmp.Diff(want, got.Options); diff != "" {
		t.Error(diff)
	}
}

func TestOfferLeavesOutWhatThereIsNot(t *testing.T) {
	s := newServer(makeConfig(t, []string{"10.75.0.2/24"}, "10.75.0.0/24"), Options{})
	_, got := reply(t, s, podMAC, request(t, dhcpv4.MessageTypeDiscover))
	want := dhcpv4.Options{
		1: {255, 255, 255, 0}, 26: {1450 >> 8, 1450 & 0xff}, 51: {0xff, 0xff, 0xff, 0xff}, 53: {2}, 54: {169, 254, 75, 1},
		121: {32, 169, 254, 75, 1, 0, 0, 0, 0},
	}
	if diff := cmp.Diff(want, got.Options); diff != "" {
		t.Error(diff)
	}
}

func TestPodWithoutIPv4AnswersNoDHCP(t *testing.T) {
	s := newServer(makeConfig(t, []string{"fd75::2/64"}), testOptions())
	if _, got := reply(t, s, podMAC, request(t, dhcpv4.MessageTypeDiscover)); got != nil {
		t.Errorf("got %s", got)
	}
}

func TestPacketsOfAnswersHaveRightChecksums(t *testing.T) {
	s := newServer(makeConfig(t, []string{"10.75.0.2/24"}), testOptions())
	p, _ := reply(t, s, podMAC, request(t, dhcpv4.MessageTypeDiscover))
	if sum := checksum(p.headerIPv4()); sum != 0 {
		t.Errorf("IPv4: %#x", sum)
	}
	pseudo := append(append(p.source.AsSlice(), p.target.AsSlice()...), 0, protocolUDP, byte(len(p.payload)>>8), byte(len(p.payload)))
	if sum := checksum(append(pseudo, p.payload...)); sum != 0 {
		t.Errorf("UDP: %#x", sum)
	}
}
