package virtualmachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

func TestMachinesAreCountedByTheirPhase(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	machine := func(name string, phase v1.Phase) *v1.VirtualMachine {
		return &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}, Status: v1.VirtualMachineStatus{Phase: phase}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine("a", v1.PhaseRunning), machine("b", v1.PhaseRunning), machine("c", v1.PhaseFailed)).Build()
	registry := prometheus.NewRegistry()
	if err := registry.Register(counter{reader}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "kvm_operator_virtualmachines" {
		t.Fatalf("there are %v, %v", families, err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"Failed": 1, "Running": 2, "Starting": 0, "Stopped": 0, "Stopping": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
