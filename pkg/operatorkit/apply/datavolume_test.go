package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestADataVolumeThatIsEndedLeavesItsClaim, and one that is deleted with its owner does not.
func TestADataVolumeThatIsEndedLeavesItsClaim(t *testing.T) {
	for verb, want := range map[string]metav1.DeletionPropagation{
		verbEnd: metav1.DeletePropagationOrphan, verbPrune: metav1.DeletePropagationBackground, "delete": metav1.DeletePropagationBackground,
	} {
		if got := propagationOf(verb, &cdiv1.DataVolume{}); got != want {
			t.Errorf("%s: %s", verb, got)
		}
	}
}
