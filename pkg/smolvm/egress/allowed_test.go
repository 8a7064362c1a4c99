package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestAllowedNetworksAreExact(t *testing.T) {
	for name, test := range map[string]struct{ text, want, problem string }{
		"an IPv4 network":              {text: "198.51.100.0/24", want: "198.51.100.0/24"},
		"an IPv4 address":              {text: "8.8.8.8", want: "8.8.8.8/32"},
		"an IPv6 network":              {text: "2001:DB8::/32", want: "2001:db8::/32"},
		"an IPv6 address":              {text: "2606:4700::1", want: "2606:4700::1/128"},
		"everything":                   {text: "0.0.0.0/0", want: "0.0.0.0/0"},
		"host bits":                    {text: "10.1.2.3/8", problem: "10.0.0.0/8"},
		"host bits of IPv6":            {text: "2001:db8::1/32", problem: "2001:db8::/32"},
		"an IPv4-mapped address":       {text: "::ffff:1.2.3.4", problem: "1.2.3.4/32"},
		"an IPv4-mapped network":       {text: "::ffff:10.0.0.1/104", problem: "10.0.0.0/8"},
		"more than IPv4 mapped":        {text: "::ffff:0.0.0.0/90", problem: "0.0.0.0/0"},
		"a zone":                       {text: "fe80::1%eth0", problem: "fe80::1/128"},
		"a network with a zone":        {text: "fe80::1%eth0/64", problem: "fe80::/64"},
		"a mapped address, zone":       {text: "::ffff:1.2.3.4%1", problem: "1.2.3.4/32"},
		"spaces":                       {text: " 10.1.0.0/8\n", problem: "10.0.0.0/8"},
		"nothing":                      {text: "", problem: "not a network"},
		"a name":                       {text: "example.org", problem: "not a network"},
		"an address with a port":       {text: "8.8.8.8:53", problem: "not a network"},
		"too many bits":                {text: "10.0.0.0/33", problem: "not a network"},
		"a sign":                       {text: "10.0.0.0/+8", problem: "not a network"},
		"a leading zero":               {text: "10.0.0.0/08", problem: "not a network"},
		"a mask":                       {text: "10.0.0.0/255.0.0.0", problem: "not a network"},
		"no bits":                      {text: "10.0.0.0/", problem: "not a network"},
		"half an address":              {text: "10/8", problem: "not a network"},
		"octal digits":                 {text: "010.0.0.1", problem: "not a network"},
		"two networks":                 {text: "10.0.0.0/8,11.0.0.0/8", problem: "not a network"},
		"more text than is to be said": {text: strings.Repeat("x", 1<<20), problem: "not a network"},
	} {
		got, err := ParseAllowed([]string{"1.1.1.1", test.text})
		switch {
		case test.problem == "" && (err != nil || len(got) != 2 || got[1].String() != test.want):
			t.Errorf("%s: read as %v (%v)", name, got, err)
		case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem) || len(err.Error()) > 400):
			t.Errorf("%s: read as %v, with the error %.500v", name, got, err)
		}
	}
	if got, err := ParseAllowed(nil); got != nil || err != nil {
		t.Errorf("nothing is read as %v (%v)", got, err)
	}
	if _, err := ParseAllowed(make([]string, maxAllowed+1)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxAllowed)) {
		t.Errorf("too many networks give %v", err)
	}
}

// FuzzParseAllowed: what is accepted is a network of either family, and reads the same when it is written.
func FuzzParseAllowed(f *testing.F) {
	for _, text := range []string{"10.0.0.0/8", "::ffff:1.2.3.4/120", "fe80::1%eth0/64", "::/0", "%", "/", "1.1.1.1%/8", " ::1 "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseAllowed([]string{text})
		if err != nil {
			return
		}
		network := got[0]
		if network != network.Masked() || network.Addr().Is4In6() || network.Addr().Zone() != "" || !network.IsValid() {
			t.Errorf("%q is read as %s", text, network)
		}
		if again, err := ParseAllowed([]string{network.String()}); err != nil || again[0] != network {
			t.Errorf("%q is read as %s, and that as %v (%v)", text, network, again, err)
		}
		if _, err := netip.ParsePrefix(network.String()); err != nil {
			t.Error(err)
		}
	})
}
