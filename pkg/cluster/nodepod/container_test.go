package nodepod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestTheRunnerGetsWhatTheUserWrote: the kubelet expands $(NAME) and replaces $$ by a dollar sign. A value without a
// dollar sign does not change, or nodes would be replaced without need.
func TestTheRunnerGetsWhatTheUserWrote(t *testing.T) {
	for value, want := range map[string]string{
		"":                  "",
		"quiet a=b":         "quiet a=b",
		"a=$(ROLE)":         "a=$$(ROLE)",
		"b=$$x $":           "b=$$$$x $$",
		"d:/data/$(ROLE)/x": "d:/data/$$(ROLE)/x",
	} {
		got := literally([]corev1.EnvVar{{Name: "A", Value: value}})
		if diff := cmp.Diff([]corev1.EnvVar{{Name: "A", Value: want}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
