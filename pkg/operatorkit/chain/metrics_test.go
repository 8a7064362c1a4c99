package chain_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

// formerRow matches a row of docs/upgrading.md about metrics of giantswarm/kvm-operator: | `names` | kept, or dropped |.
var formerRow = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+_[a-z_`, ]+`) \\| (kept|dropped)[,;]")

// TestMetricsOfTheFormerOperator: what docs/upgrading.md says is kept is registered with its former type and labels, and
// what it says is dropped is not.
func TestMetricsOfTheFormerOperator(t *testing.T) {
	page, err := os.ReadFile("../../../docs/upgrading.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, row := range formerRow.FindAllStringSubmatch(string(page), -1) {
		documented[row[2]] = append(documented[row[2]], strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	chain.ObservePass("former", false, time.Second)
	chain.Observe("former", "default/abc12", false, []chain.Result{{Handler: "release", Err: errTransient}})
	t.Cleanup(func() { chain.Forget("former", "default/abc12") })
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		name := family.GetName()
		if slices.Contains(documented["dropped"], name) {
			t.Errorf("%s is not dropped", name)
		}
		for _, metric := range family.GetMetric() {
			if l := labels(metric); l["controller"] == "former" && slices.Contains(documented["kept"], name) {
				delete(l, "controller")
				got[name] = strings.Join(append([]string{family.GetType().String()}, slices.Sorted(maps.Keys(l))...), " ")
			}
		}
	}
	want := map[string]string{
		"operatorkit_controller_error_total":     "COUNTER resource",
		"operatorkit_controller_event":           "HISTOGRAM event",
		"operatorkit_controller_last_reconciled": "GAUGE",
		"operatorkit_controller_operation":       "HISTOGRAM operation resource",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other metrics are documented as kept and registered (-want +got):\n%s", diff)
	}
	if len(documented["kept"]) != len(want) || len(documented["dropped"]) != 10 {
		t.Errorf("docs/upgrading.md has other metrics: %v", documented)
	}
}
