package smolvm

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// gathered returns the metrics of a collector that are not 0, by name and labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				name = append(name, label.GetName()+"="+label.GetValue())
			}
			if value := m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); value != 0 || family.GetName() == "kvm_operator_smolvmnode_ready" {
				got[strings.Join(name, " ")] = value
			}
		}
	}
	return got
}

func TestSmolVMsAreCountedByPhaseAndNode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	node := func(name string, ready metav1.ConditionStatus, age time.Duration) *v1alpha1.SmolVMNode {
		beat := metav1.NewTime(now.Add(-age))
		return &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.SmolVMNodeStatus{
			HeartbeatTime: &beat, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}},
		}}
	}
	vm := func(name, node string, phase v1alpha1.Phase) *v1alpha1.SmolVM {
		return &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Status: v1alpha1.SmolVMStatus{NodeName: node, Phase: phase}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		node("n1", metav1.ConditionTrue, 20*time.Second), node("n2", metav1.ConditionFalse, -time.Hour),
		vm("a", "n1", v1alpha1.PhaseRunning), vm("b", "n1", v1alpha1.PhaseRunning), vm("c", "n1", v1alpha1.PhaseFailed),
		vm("d", "", v1alpha1.PhasePending), vm("e", "gone", v1alpha1.PhaseUnknown), vm("new", "", ""),
	).Build()
	c := counter{reader, clocktesting.NewFakePassiveClock(now.Truncate(time.Second))}
	want := map[string]float64{
		"kvm_operator_smolvms node=n1 phase=Running": 2, "kvm_operator_smolvms node=n1 phase=Failed": 1, "kvm_operator_smolvms node= phase=Pending": 1,
		"kvm_operator_smolvms node=gone phase=Unknown": 1, "kvm_operator_smolvmnode_ready node=n1": 1, "kvm_operator_smolvmnode_ready node=n2": 0,
		"kvm_operator_smolvmnode_heartbeat_age_seconds node=n1": 20,
	}
	if diff := cmp.Diff(want, gathered(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyFirstRunsAreMeasured(t *testing.T) {
	now := time.Now()
	earlier := metav1.NewTime(now.Add(-time.Hour))
	for name, test := range map[string]struct {
		before, after v1alpha1.SmolVMStatus
		generation    int64
		measured      bool
	}{
		"it runs for the first time":      {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseCreated}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 1, true},
		"it runs after some attempts":     {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseFailed}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 1, true},
		"it does not run yet":             {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseScheduled}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseCreated}, 1, false},
		"it runs on":                      {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 1, false},
		"it runs again":                   {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseStopped}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 1, false},
		"it had run, and failed to start": {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseFailed, StartTime: &earlier}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 1, false},
		"its spec was another one first":  {v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseCreated}, v1alpha1.SmolVMStatus{Phase: v1alpha1.PhaseRunning}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := sampled(t)
			vm := v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Generation: test.generation, CreationTimestamp: metav1.NewTime(now.Add(-30 * time.Second))}}
			was, is := vm.DeepCopy(), vm.DeepCopy()
			was.Status, is.Status = test.before, test.after
			observeRun(was, is, now)
			count, sum := sampled(t).GetSampleCount()-before.GetSampleCount(), sampled(t).GetSampleSum()-before.GetSampleSum()
			if (count == 1 && sum == 30) != test.measured || !test.measured && count != 0 {
				t.Errorf("%d runs of %g s were measured", count, sum)
			}
		})
	}
}

func sampled(t *testing.T) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := toRunning.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}

// TestMetricsAreDocumented: each has a row in the settings, where those of the operator are.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 10)
	for _, c := range []prometheus.Collector{counter{}, toRunning, requests} {
		c.Describe(descriptions)
	}
	close(descriptions)
	n := 0
	for d := range descriptions {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if n++; !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("%s is not documented", name)
		}
	}
	if n != 5 {
		t.Errorf("%d metrics, want 5", n)
	}
}
