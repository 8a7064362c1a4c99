package qmp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

func TestMask(t *testing.T) {
	for name, test := range map[string]struct{ command, want string }{
		"a display's password": {
			`{"execute":"set_password","arguments":{"protocol":"spice","password":"x"}}`,
			`{"arguments":{"password":"***","protocol":"spice"},"execute":"set_password"}`,
		},
		"a secret object": {
			`{"execute":"object-add","arguments":{"qom-type":"secret","id":"s","data":"x"}}`,
			`{"arguments":{"data":"***","id":"s","qom-type":"secret"},"execute":"object-add"}`,
		},
		"another object's data": {
			`{"arguments":{"data":"x","id":"s","qom-type":"other"}}`,
			`{"arguments":{"data":"x","id":"s","qom-type":"other"}}`,
		},
		"the human monitor": {
			`{"execute":"human-monitor-command","arguments":{"command-line":"set_password vnc x"}}`,
			`{"arguments":{"command-line":"***"},"execute":"human-monitor-command"}`,
		},
		"the human monitor without password": {
			`{"arguments":{"command-line":"info pci"}}`,
			`{"arguments":{"command-line":"info pci"}}`,
		},
		"a password deep in a list": {
			`{"arguments":[[{"Proxy-Password":["x"]}]]}`,
			`{"arguments":[[{"Proxy-Password":"***"}]]}`,
		},
		"memory stays readable": {`{"arguments":{"value":4294967296}}`, `{"arguments":{"value":4294967296}}`},
		"no JSON":               {`password=x`, `"***"`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, string(qmp.Mask([]byte(test.command)))); diff != "" {
				t.Errorf("it is masked otherwise (-want +got):\n%s", diff)
			}
		})
	}
}
