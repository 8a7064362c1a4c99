package v1alpha1_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// A rejection is a change and the one sentence by which the API server refuses it.
type rejection struct{ change, want string }

// rejected are changes to the objects of testdata that the API server refuses, by object.
var rejected = map[string][]map[string]rejection{
	machine: {rejectedSizes, rejectedDisks, rejectedImports, rejectedDevices, rejectedBoot, rejectedClassics},
	network: {rejectedNetworks},
	class:   {rejectedClasses},
}

func TestBadObjectsAreRefusedWithOneSentence(t *testing.T) {
	for kind, tables := range rejected {
		for _, table := range tables {
			for name, test := range table {
				t.Run(kind+"/"+name, func(t *testing.T) {
					err := server.Create(t.Context(), crd.Load(t, kind, test.change), client.DryRunAll)
					crd.Refused(t, err, test.want)
				})
			}
		}
	}
}

// TestEveryRuleRefusesSomething holds the tables complete: a rule of the CRDs that no row runs into has no test.
func TestEveryRuleRefusesSomething(t *testing.T) {
	said := map[string][]string{}
	for kind, tables := range rejected {
		for _, table := range append(tables, refusedStatuses[kind]) {
			for _, row := range table {
				said[kind] = append(said[kind], row.want)
			}
		}
	}
	for _, row := range updates {
		said[machine] = append(said[machine], row.want)
	}
	rules := 0
	for kind, file := range map[string]string{machine: machines, network: networks, class: classes} {
		rules += crd.EveryRuleSpeaks(t, file, said[kind])
	}
	if rules < 24 {
		t.Errorf("the test has found %d rules and overlooks most", rules)
	}
}

// outside is what the API server says of a number that is out of its bounds.
func outside(path string, value int64, bound string) string {
	return fmt.Sprintf("%s: Invalid value: %d: %s in body should be %s", path, value, path, bound)
}

// tooLong is what the API server says of a text that is too long.
func tooLong(path string, most int) string {
	return fmt.Sprintf("%s: Too long: may not be more than %d bytes", path, most)
}
