package vitistack_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

func TestUsableAddresses(t *testing.T) {
	for name, test := range map[string]struct {
		reported  string
		all, ipv6 []string
	}{
		"both families, in their order": {"2001:db8::1 10.0.0.1", []string{"2001:db8::1", "10.0.0.1"}, []string{"2001:db8::1"}},
		"of the link":                   {"fe80::1 169.254.3.4 10.0.0.1", []string{"10.0.0.1"}, nil},
		"of loopback, groups and none":  {"127.0.0.1 ::1 224.0.0.1 ff02::1 0.0.0.0 :: 255.255.255.255", nil, nil},
		"no addresses":                  {"x 10.0.0 10.0.0.1/24 fe80::1%eth0 2001:db8::1%eth0", nil, nil},
		"twice, written in two ways":    {"2001:db8:0::1 2001:DB8::1 10.0.0.1 ::ffff:10.0.0.1", []string{"2001:db8::1", "10.0.0.1"}, []string{"2001:db8::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			all, ipv6 := vitistack.Addresses(strings.Fields(test.reported))
			if diff := cmp.Diff([][]string{test.all, test.ipv6}, [][]string{all, ipv6}); diff != "" {
				t.Errorf("the addresses are others (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzAddresses: whatever a guest reports, only valid addresses are shown, and not many.
func FuzzAddresses(f *testing.F) {
	f.Add("10.0.0.1 fe80::1%eth0 x ::ffff:10.0.0.1")
	f.Add(strings.Repeat("10.0.0.1 ", 100))
	f.Fuzz(func(t *testing.T, reported string) {
		all, ipv6 := vitistack.Addresses(strings.Split(reported, " "))
		if len(all) > 32 {
			t.Errorf("%d addresses", len(all))
		}
		for i, text := range all {
			address, err := netip.ParseAddr(text)
			if err != nil || address.IsLoopback() || address.IsLinkLocalUnicast() || slices.Index(all, text) != i || address.Is6() != slices.Contains(ipv6, text) {
				t.Errorf("%q is shown as %v, %v", reported, all, ipv6)
			}
		}
	})
}

// FuzzTypes: whatever a message says, the types are those of the API, and the first is the reason.
func FuzzTypes(f *testing.F) {
	f.Add("TemplateNotFound, NameConflict: a; b")
	f.Add("TemplateNotFound, x: a")
	f.Add("NameConflict, TemplateNotFound: a")
	f.Fuzz(func(t *testing.T, message string) {
		types := vitistack.Types(v1alpha1.MachineStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: v1alpha1.TemplateNotFound, Message: message}}})
		if len(types) == 0 || types[0] != v1alpha1.TemplateNotFound {
			t.Errorf("the types are %v", types)
		}
		for _, kind := range types {
			if !slices.Contains(v1alpha1.ErrorTypes(), kind) {
				t.Errorf("%q is no type", kind)
			}
		}
	})
}

// FuzzQuotaExceeded: the text of a quota never has what is used at the moment, which changes with each attempt.
func FuzzQuotaExceeded(f *testing.F) {
	f.Add(`pods "virt-launcher-agent-x7k" is forbidden: exceeded quota: a, requested: b=1, used: b=2, limited: b=2`)
	f.Add("exceeded quota: , limited: , used: ")
	f.Fuzz(func(t *testing.T, message string) {
		text, ok := vitistack.QuotaExceeded(message)
		if ok != strings.Contains(message, "exceeded quota: ") || ok && !strings.HasPrefix(text, "exceeded quota: ") || len(text) > len(message) {
			t.Errorf("of %q it makes %q, %t", message, text, ok)
		}
	})
}
