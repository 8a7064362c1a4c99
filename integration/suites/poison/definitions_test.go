package poison_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
)

// quiet is how long the test watches an operator that must do nothing. When it may work, it needs less time.
const quiet = 8 * time.Second

// TestNothingIsReconciledByAnOutdatedDefinition: with such a definition, the API server would drop the conditions, and
// the operator would work with half a status.
func TestNothingIsReconciledByAnOutdatedDefinition(t *testing.T) {
	running := theLab.Run(t)
	config := made(t, fixture.MakeCluster("older").Workers(1))
	awaitWorkedOn(t, config)
	restore := changeSchema(t, kvmConfigs, func(crd *apiextensionsv1.CustomResourceDefinition) {
		delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "conditions")
	})
	awaitMetric(t, "kvm_operator_outdated_definition", 1)
	awaitDefinitionEvent(t, "lacks status.conditions")

	running.Requests.Reset()
	worker := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "older", Name: "worker"}}
	theLab.Delete(t, worker)
	born := made(t, fixture.MakeCluster("newer"))
	time.Sleep(quiet)
	if theLab.Exists(t, worker) || theLab.Exists(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "newer"}}) {
		t.Error("the operator has made something by an outdated definition")
	}
	for _, id := range []string{"older", "newer"} {
		for _, request := range running.Requests.Of(id) {
			if request.Write() {
				t.Errorf("the operator asked for %v", request)
			}
		}
	}
	running.Stop()
	// An operator that starts with an outdated definition does not reconcile.
	begun := theLab.Run(t)
	time.Sleep(quiet)
	for _, request := range begun.Requests.Writes() {
		if !strings.Contains(request.Path, "/events") {
			t.Errorf("the operator that began asked for %v", request)
		}
	}
	restore()
	awaitMetric(t, "kvm_operator_outdated_definition", 0)
	awaitWorkedOn(t, born)
	lab.Eventually(t, lab.Timeout, func() error {
		return theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(worker), worker)
	})
}

func awaitDefinitionEvent(t *testing.T, words string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		var list corev1.EventList
		if err := theLab.Client.List(context.Background(), &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == kvmConfigs && e.Reason == "DefinitionOutdated" && strings.Contains(e.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("no event of %s says %q", kvmConfigs, words)
	})
}
