package state_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

func TestTolerationsAreWrittenAsTaints(t *testing.T) {
	for text, want := range map[string]corev1.Toleration{
		"example.org/machines=true:NoSchedule": {Key: "example.org/machines", Operator: "Equal", Value: "true", Effect: "NoSchedule"},
		"machines=:NoExecute":                  {Key: "machines", Operator: "Equal", Effect: "NoExecute"},
		"machines:PreferNoSchedule":            {Key: "machines", Operator: "Exists", Effect: "PreferNoSchedule"},
		"machines=true":                        {Key: "machines", Operator: "Equal", Value: "true"},
		"machines":                             {Key: "machines", Operator: "Exists"},
	} {
		got, err := state.ParseToleration(text)
		if err != nil {
			t.Errorf("%s: %s", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "=true", "a:", "a:Sometimes", "a b", "a=b c", "a=b:NoSchedule:"} {
		if got, err := state.ParseToleration(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
