package guestnet

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

var (
	guestLink = netip.MustParseAddr("fe80::42:aff:fe4b:2")
	clientID  = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr(podMAC)}
	strangeID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
)

func request6(kind dhcpv6.MessageType, more ...dhcpv6.Modifier) *dhcpv6.Message {
	message := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	for _, modify := range append([]dhcpv6.Modifier{dhcpv6.WithClientID(clientID)}, more...) {
		modify(message)
	}
	return message
}

// identity requests addresses, or reports those that the guest has.
func identity(id byte, addresses ...string) dhcpv6.Modifier {
	option := &dhcpv6.OptIANA{IaId: [4]byte{id}}
	for _, address := range addresses {
		option.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(address)})
	}
	return func(d dhcpv6.DHCPv6) { d.AddOption(option) }
}

func delegation(id byte) dhcpv6.Modifier { return dhcpv6.WithIAPD([4]byte{id}) }

func dhcpv6Frame(message []byte) []byte {
	group := netip.MustParseAddr("ff02::1:2")
	p := packet{sourceMAC: net.HardwareAddr(podMAC), targetMAC: multicastMAC(group), source: guestLink, target: group, hopLimit: 1}
	return p.withUDP(datagram{sourcePort: portDHCPv6Client, targetPort: portDHCPv6Server, payload: message}).frame()
}

// describe6 describes the server's reply: type, status, and for each identity its addresses with their lifetimes.
func describe6(t *testing.T, s *server, request *dhcpv6.Message) []string {
	t.Helper()
	got := s.fromGuest(dhcpv6Frame(request.ToBytes()))
	if len(got.toGuest) == 0 {
		return nil
	}
	p, ok := parsePacket(got.toGuest[0].frame())
	d, isUDP := p.parseUDP()
	if !ok || !isUDP || p.source != RunnerAddress6 || p.target != guestLink || d.targetPort != portDHCPv6Client {
		t.Fatalf("the answer is no DHCPv6 for the guest: %v", p)
	}
	message, err := dhcpv6.MessageFromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	if message.TransactionID != request.TransactionID || message.Options.ServerID() == nil {
		t.Errorf("the answer lacks transaction or server: %s", message)
	}
	described := []string{message.Type().String()}
	if message.GetOneOption(dhcpv6.OptionRapidCommit) != nil {
		described = append(described, "at once")
	}
	if status := message.Options.Status(); status != nil {
		described = append(described, status.StatusCode.String())
	}
	for _, identity := range message.Options.IANA() {
		described = append(described, describeIdentity(identity))
	}
	for _, identity := range message.Options.IAPD() {
		described = append(described, "prefix: "+identity.Options.Status().StatusCode.String())
	}
	return described
}

func describeIdentity(identity *dhcpv6.OptIANA) string {
	words := []string{string('0'+rune(identity.IaId[0])) + ":"}
	if status := identity.Options.Status(); status != nil {
		words = append(words, status.StatusCode.String())
	}
	for _, address := range identity.Options.Addresses() {
		lifetime := "forever"
		if address.ValidLifetime == 0 && address.PreferredLifetime == 0 {
			lifetime = "no more"
		} else if address.ValidLifetime != forever || address.PreferredLifetime != forever {
			lifetime = address.ValidLifetime.String()
		}
		words = append(words, address.IPv6Addr.String(), lifetime)
	}
	return strings.Join(words, " ")
}

func TestMessagesAreAnsweredAsRFC8415Says(t *testing.T) {
	s := newServer(makeConfig(t, []string{"fd75::2/64"}, "::/0 via fd75::1", "fd75::/64"), testOptions())
	ours, strange := dhcpv6.WithServerID(s.duid()), dhcpv6.WithServerID(strangeID)
	const all = "1: fd75::2 forever"
	cases := map[string]struct {
		request *dhcpv6.Message
		want    []string // none: no answer
	}{
		"SOLICIT": {request6(dhcpv6.MessageTypeSolicit, identity(1)), []string{"ADVERTISE", all}},
		"SOLICIT that wants it at once": {
			request6(dhcpv6.MessageTypeSolicit, identity(1), dhcpv6.WithRapidCommit), []string{"REPLY", "at once", all},
		},
		"SOLICIT for two identities and a prefix": {
			request6(dhcpv6.MessageTypeSolicit, identity(1), identity(2), delegation(3)),
			[]string{"ADVERTISE", all, "2: NoAddrsAvail", "prefix: NoPrefixAvail"},
		},
		"SOLICIT to a server":      {request6(dhcpv6.MessageTypeSolicit, identity(1), ours), nil},
		"SOLICIT without a client": {request6(dhcpv6.MessageTypeSolicit, func(d dhcpv6.DHCPv6) { d.(*dhcpv6.Message).Options.Del(dhcpv6.OptionClientID) }), nil},
		"REQUEST":                  {request6(dhcpv6.MessageTypeRequest, identity(1), ours), []string{"REPLY", all}},
		"REQUEST to another":       {request6(dhcpv6.MessageTypeRequest, identity(1), strange), nil},
		"REQUEST without a server": {request6(dhcpv6.MessageTypeRequest, identity(1)), nil},
		"RENEW of what an earlier pod had": {
			request6(dhcpv6.MessageTypeRenew, identity(1, "fd75::99"), ours), []string{"REPLY", all + " fd75::99 no more"},
		},
		"REBIND":                    {request6(dhcpv6.MessageTypeRebind, identity(1, "fd75::2")), []string{"REPLY", all}},
		"CONFIRM":                   {request6(dhcpv6.MessageTypeConfirm, identity(1, "fd75::2")), []string{"REPLY", "Success"}},
		"CONFIRM of an earlier pod": {request6(dhcpv6.MessageTypeConfirm, identity(1, "fd75::99")), []string{"REPLY", "NotOnLink"}},
		"RELEASE":                   {request6(dhcpv6.MessageTypeRelease, identity(1, "fd75::2"), ours), []string{"REPLY", "Success"}},
		"DECLINE":                   {request6(dhcpv6.MessageTypeDecline, identity(1, "fd75::2"), ours), []string{"REPLY", "Success"}},
		"INFORMATION-REQUEST":       {request6(dhcpv6.MessageTypeInformationRequest), []string{"REPLY"}},
		"a reply":                   {request6(dhcpv6.MessageTypeReply, ours), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, describe6(t, s, c.request)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReplyHasServers(t *testing.T) {
	s := newServer(makeConfig(t, []string{"fd75::2/64"}), testOptions())
	got := s.replyDHCPv6(request6(dhcpv6.MessageTypeInformationRequest))
	want := [][]net.IP{{resolver6.AsSlice()}, {clock6.AsSlice()}}
	if diff := cmp.Diff(want, [][]net.IP{got.Options.DNS(), got.Options.NTPServers()}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(testOptions().SearchDomains, got.Options.DomainSearchList().Labels); diff != "" {
		t.Error(diff)
	}
}

func TestPodWithoutIPv6AnswersNoDHCPv6(t *testing.T) {
	s := newServer(makeConfig(t, []string{"10.75.0.2/24"}), testOptions())
	if got := describe6(t, s, request6(dhcpv6.MessageTypeSolicit, identity(1))); got != nil {
		t.Errorf("got %v", got)
	}
}
