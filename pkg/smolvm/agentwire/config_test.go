package agentwire

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

func TestConfigArrivesAsItWasSent(t *testing.T) {
	sent := Config{
		Name: "small", Process: ociprocess.Process{Entrypoint: []string{"/bin/sh"}, Environment: []string{"A=b"}}, Grace: time.Second,
		Network: &Network{Address: netip.MustParsePrefix("100.96.0.2/30"), Gateway: netip.MustParseAddr("100.96.0.1"), DNS: netip.MustParseAddr("100.96.0.1")},
	}
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseConfig(text)
	if diff := cmp.Diff(sent, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if c, err := ParseConfig([]byte(`{}`)); err != nil || c.Grace != DefaultGrace || c.Network != nil {
		t.Errorf("an empty one is %+v, %v", c, err)
	}
}

func TestConfigThatMakesNoMachineIsRefused(t *testing.T) {
	const network = `{"network":{"address":"100.96.0.2/30","gateway":"100.96.0.1","dns":"100.96.0.1"`
	for name, test := range map[string]struct{ text, want string }{
		"no JSON":              {"", "parsing the machine's configuration"},
		"much of it":           {strings.Repeat(" ", MaxConfig+1), "at most 1048576 are allowed"},
		"a long name":          {`{"name":"` + strings.Repeat("x", 65) + `"}`, "has more than 64 bytes"},
		"a name of two lines":  {`{"name":"a\nb"}`, "or spaces"},
		"no address":           {`{"network":{"gateway":"100.96.0.1","dns":"100.96.0.1"}}`, "no valid address"},
		"no gateway":           {`{"network":{"address":"100.96.0.2/30","dns":"100.96.0.1"}}`, "no valid address"},
		"no name server":       {`{"network":{"address":"100.96.0.2/30","gateway":"100.96.0.1"}}`, "no valid address"},
		"an MTU below nothing": {network + `,"mtu":-1}}`, "no valid address"},
	} {
		if c, err := ParseConfig([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}
