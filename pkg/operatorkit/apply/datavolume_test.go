package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestADataVolumeThatIsPrunedLeavesItsClaim, and one that is deleted with its owner does not.
func TestADataVolumeThatIsPrunedLeavesItsClaim(t *testing.T) {
	for verb, want := range map[string]metav1.DeletionPropagation{
		verbPrune: metav1.DeletePropagationOrphan, "delete": metav1.DeletePropagationBackground,
	} {
		options := &client.DeleteOptions{}
		deletePropagation(verb, &cdiv1.DataVolume{}).ApplyToDelete(options)
		if *options.PropagationPolicy != want {
			t.Errorf("%s: %s", verb, *options.PropagationPolicy)
		}
	}
}
