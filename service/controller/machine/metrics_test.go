package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func sources() Sources {
	return Sources{
		Machines: func(context.Context) ([]Counted, error) {
			return []Counted{{"Running", "small"}, {"Running", "small"}, {"Pending", ""}}, nil
		},
		VirtualMachines: func(context.Context) ([]string, error) { return []string{"Running", "Running", "Stopped"}, nil },
		Leads:           func() bool { return true },
	}
}

// gather returns the values by name and labels, and the types by name.
func gather(t *testing.T, m *Metrics) (values map[string]float64, kinds map[string]string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, kinds = map[string]float64{}, map[string]string{}
	for _, family := range families {
		kinds[family.GetName()] = family.GetType().String()
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			values[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(metric)
		}
	}
	return values, kinds
}

// value returns the value of a gauge or counter, and the number of observations of a histogram.
func value(metric *dto.Metric) float64 {
	return metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
}

// TestMetricsAreThoseOfTheReferencePage: names, types and labels are what dashboards of vitistack's operator ask for.
func TestMetricsAreThoseOfTheReferencePage(t *testing.T) {
	m := NewMetrics(sources())
	m.Pass(time.Second)
	m.Error(v1alpha1.NetworkConfigurationNotFound)
	m.Error("")
	m.NetworkError("prod-network")
	claims := m.Claims(time.Now)
	claims.OnAdd(claim("u", "fast", corev1.ClaimBound), false)
	values, kinds := gather(t, m)
	wantKinds := map[string]string{
		"kubevirt_operator_machines_total":                        "GAUGE",
		"kubevirt_operator_reconciliation_duration_seconds":       "HISTOGRAM",
		"kubevirt_operator_reconciliation_errors_total":           "COUNTER",
		"kubevirt_operator_virtual_machines_total":                "GAUGE",
		"kubevirt_operator_storage_provisioning_duration_seconds": "HISTOGRAM",
		"kubevirt_operator_network_configuration_errors_total":    "COUNTER",
	}
	if diff := cmp.Diff(wantKinds, kinds); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	const failed = `kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type=`
	want := map[string]float64{
		`kubevirt_operator_machines_total{phase="Running",template="small"}`:                2,
		`kubevirt_operator_machines_total{phase="Pending",template=""}`:                     1,
		`kubevirt_operator_reconciliation_duration_seconds{controller="Machine"}`:           1,
		failed + `"TemplateNotFound"}`:                                                      0,
		failed + `"NetworkConfigurationNotFound"}`:                                          1,
		failed + `"StorageClassNotFound"}`:                                                  0,
		failed + `"InsufficientResources"}`:                                                 0,
		failed + `"KubeVirtApiError"}`:                                                      0,
		failed + `"Unknown"}`:                                                               1,
		`kubevirt_operator_virtual_machines_total{status="Running"}`:                        2,
		`kubevirt_operator_virtual_machines_total{status="Stopped"}`:                        1,
		`kubevirt_operator_storage_provisioning_duration_seconds{storage_class="fast"}`:     1,
		`kubevirt_operator_network_configuration_errors_total{network_name="prod-network"}`: 1,
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestAReplicaThatWaitsCountsNoObjects(t *testing.T) {
	s := sources()
	s.Leads = func() bool { return false }
	s.Machines = func(context.Context) ([]Counted, error) {
		t.Error("the cache is read")
		return nil, nil
	}
	m := NewMetrics(s)
	m.Claims(time.Now).OnAdd(claim("u", "fast", corev1.ClaimBound), false)
	values, _ := gather(t, m)
	for name := range values {
		if !strings.HasPrefix(name, "kubevirt_operator_reconciliation_") {
			t.Errorf("there is %s", name)
		}
	}
}

func TestAGaugeThatCannotBeReadIsLeftOut(t *testing.T) {
	s := sources()
	s.Machines = func(context.Context) ([]Counted, error) { return nil, errors.New("the cache is closed") }
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewMetrics(s))
	families, err := registry.Gather()
	if err == nil || len(families) == 0 {
		t.Fatalf("there are %d families and the error %v, want both", len(families), err)
	}
	for _, family := range families {
		if family.GetName() == "kubevirt_operator_machines_total" {
			t.Errorf("there is %v", family)
		}
	}
}

// TestNamesOfNetworksAreBounded: users choose the names, so a counter for each would fill the memory.
func TestNamesOfNetworksAreBounded(t *testing.T) {
	m := NewMetrics(sources())
	for i := range 3 * mostNetworks {
		m.NetworkError(fmt.Sprint("n", i))
	}
	m.NetworkError("n0")
	values, _ := gather(t, m)
	series := 0
	for name := range values {
		if strings.HasPrefix(name, "kubevirt_operator_network_configuration_errors_total") {
			series++
		}
	}
	const name = "kubevirt_operator_network_configuration_errors_total"
	if series != mostNetworks+1 || values[name+`{network_name="(others)"}`] != 2*mostNetworks || values[name+`{network_name="n0"}`] != 2 {
		t.Errorf("there are %d series, %v others", series, values[name+`{network_name="(others)"}`])
	}
}

func claim(uid, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: metav1.Unix(1000, 0)},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class)},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func TestEachClaimIsObservedOnceWhenItIsBound(t *testing.T) {
	type event struct {
		before, after *corev1.PersistentVolumeClaim
		initial       bool
	}
	pending, bound := claim("u", "fast", corev1.ClaimPending), claim("u", "fast", corev1.ClaimBound)
	for name, c := range map[string]struct {
		events []event
		want   float64
	}{
		"created, then bound, then changed":        {[]event{{after: pending}, {before: pending, after: bound}, {before: bound, after: bound}}, 1},
		"bound before the watch shows it":          {[]event{{after: bound}}, 1},
		"pending at the start, then bound":         {[]event{{after: pending, initial: true}, {before: pending, after: bound}}, 1},
		"bound at the start":                       {[]event{{after: bound, initial: true}, {before: bound, after: bound}}, 0},
		"replaced while the watch was interrupted": {[]event{{after: bound, initial: true}, {before: bound, after: claim("v", "fast", corev1.ClaimBound)}}, 1},
		"never bound":                              {[]event{{after: pending}, {before: pending, after: pending}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMetrics(sources())
			handler := m.Claims(func() time.Time { return time.Unix(1007, 0) })
			for _, e := range c.events {
				if e.before == nil {
					handler.OnAdd(e.after, e.initial)
				} else {
					handler.OnUpdate(e.before, e.after)
				}
			}
			metric := dto.Metric{}
			if err := m.provisioning.WithLabelValues("fast").(prometheus.Histogram).Write(&metric); err != nil {
				t.Fatal(err)
			}
			if got := metric.GetHistogram(); float64(got.GetSampleCount()) != c.want || got.GetSampleSum() != 7*c.want {
				t.Errorf("observed are %v", got)
			}
		})
	}
}

func TestObjectsAreCountedFromTheCache(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	labeled := named("b")
	labeled.Labels = map[string]string{v1alpha1.LabelTemplate: "large"}
	ours := named("a")
	ours.Labels = map[string]string{v1alpha1.LabelSourceMachine: "a"}
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.Machine{ObjectMeta: named("a"), Spec: v1alpha1.MachineSpec{Template: "small"}, Status: v1alpha1.MachineStatus{Phase: "Running"}},
		&v1alpha1.Machine{ObjectMeta: labeled, Spec: v1alpha1.MachineSpec{Provider: "kubevirt"}},
		&v1alpha1.Machine{ObjectMeta: named("c"), Spec: v1alpha1.MachineSpec{Provider: "proxmox"}},
		&kubevirtv1.VirtualMachine{ObjectMeta: named("foreign"), Status: kubevirtv1.VirtualMachineStatus{PrintableStatus: "Running"}},
		&kubevirtv1.VirtualMachine{ObjectMeta: ours, Status: kubevirtv1.VirtualMachineStatus{PrintableStatus: "Running"}},
	).Build()
	machines, err := CountMachines(cached)(t.Context())
	if diff := cmp.Diff([]Counted{{"Running", "small"}, {"Pending", "large"}}, machines); err != nil || diff != "" {
		t.Errorf("Machines (%v):\n%s", err, diff)
	}
	statuses, err := CountVirtualMachines(func() client.Reader { return cached })(t.Context())
	if diff := cmp.Diff([]string{"Running"}, statuses); err != nil || diff != "" {
		t.Errorf("VirtualMachines (%v):\n%s", err, diff)
	}
	if statuses, err := CountVirtualMachines(func() client.Reader { return nil })(t.Context()); err != nil || len(statuses) != 0 {
		t.Errorf("without KubeVirt: %v, %v", statuses, err)
	}
}
