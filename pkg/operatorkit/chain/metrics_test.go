package chain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// unfinished returns the gauge of unfinished handlers for an object: the reason by handler.
func unfinished(t *testing.T, object string) map[string]string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, family := range families {
		if family.GetName() != "kvm_operator_handler_unfinished" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if labels := labels(metric); labels["object"] == object {
				found[labels["resource"]] = labels["reason"]
			}
		}
	}
	return found
}

func labels(metric *dto.Metric) map[string]string {
	named := map[string]string{}
	for _, label := range metric.GetLabel() {
		named[label.GetName()] = label.GetValue()
	}
	return named
}

// TestMetricsTellWhatIsUnfinishedNow: a reason that has passed leaves no series behind, and neither does an object that
// is gone.
func TestMetricsTellWhatIsUnfinishedNow(t *testing.T) {
	const object = "default/abc12"
	chain.Observe("cluster", object, false, []chain.Result{
		{Handler: "release", Err: errMissing},
		{Handler: "namespace", Outcome: chain.Done()},
		{Handler: "configmap", BlockedBy: []string{"release"}},
	})
	first := unfinished(t, object)
	chain.Observe("cluster", object, false, []chain.Result{{Handler: "release", Outcome: chain.Done()}, {Handler: "configmap", Err: errTransient}})
	second := unfinished(t, object)
	chain.Forget("cluster", object)
	want := []map[string]string{{"release": "Missing", "configmap": "Blocked"}, {"configmap": "Retrying"}, nil}
	if diff := cmp.Diff(want, []map[string]string{first, second, unfinished(t, object)}, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the gauge tells something else (-want +got):\n%s", diff)
	}
}
