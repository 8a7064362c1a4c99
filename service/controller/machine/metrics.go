// Package machine is the controller of Machines.
package machine

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// The names, labels and types of these metrics are those of vitistack's reference page.
var (
	descMachines = prometheus.NewDesc("kubevirt_operator_machines_total",
		"Machines by phase and template.", []string{"phase", "template"}, nil)
	descVirtualMachines = prometheus.NewDesc("kubevirt_operator_virtual_machines_total",
		"VirtualMachines of Machines by the status that KubeVirt prints.", []string{"status"}, nil)
)

const (
	// controllerLabel is the value of the label controller.
	controllerLabel = "Machine"
	// errorUnknown is the error type of passes that failed for a reason which has no error type of its own.
	errorUnknown = "Unknown"
	// scrapeTimeout bounds reading the caches for a scrape.
	scrapeTimeout = 5 * time.Second
	// mostNetworks is the maximum number of names of networks in the metrics, and otherNetworks stands for further ones.
	// Users who may create Machines choose names of networks, and a counter stays until the process ends.
	mostNetworks  = 1000
	otherNetworks = "(others)"
)

// pageErrors are the error types of the reference page. Their counters are there from the start, so that an alert sees the
// first error as a change from zero.
var pageErrors = []string{
	v1alpha1.TemplateNotFound, v1alpha1.NetworkConfigurationNotFound, v1alpha1.StorageClassNotFound,
	v1alpha1.InsufficientResources, v1alpha1.KubeVirtAPIError,
}

// Counted is what is counted of a Machine.
type Counted struct {
	// Phase is one of the phases of the API.
	Phase string
	// Template is empty for none.
	Template string
}

// Sources are what metrics are computed from at each scrape, so that no object is counted that is gone.
type Sources struct {
	// Machines returns what is counted of each Machine.
	Machines func(context.Context) ([]Counted, error)
	// VirtualMachines returns the printed status of the VirtualMachine of each Machine; none while KubeVirt is not
	// installed.
	VirtualMachines func(context.Context) ([]string, error)
	// Leads returns whether this replica is the leader. Others count nothing, so that sums over replicas are right.
	Leads func() bool
}

// Metrics are the metrics of the operator for Machines. It is a prometheus.Collector, for one registry.
type Metrics struct {
	sources      Sources
	passes       *prometheus.HistogramVec
	errors       *prometheus.CounterVec
	provisioning *prometheus.HistogramVec
	networks     *prometheus.CounterVec

	mu sync.Mutex
	// names are the networks that have a counter.
	names map[string]bool
}

// NewMetrics returns metrics that are zero.
func NewMetrics(s Sources) *Metrics {
	m := &Metrics{
		sources: s, names: map[string]bool{},
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubevirt_operator_reconciliation_duration_seconds", Help: "How long reconciles of Machines take.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"controller"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_operator_reconciliation_errors_total",
			Help: "Errors of Machines, one each time that a Machine gets into one, and failed reconciles.",
		}, []string{"controller", "error_type"}),
		provisioning: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubevirt_operator_storage_provisioning_duration_seconds", Help: "How long claims take from creation to being bound.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800},
		}, []string{"storage_class"}),
		networks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_operator_network_configuration_errors_total",
			Help: "Machines that got into an error because a NetworkConfiguration is missing or not ready.",
		}, []string{"network_name"}),
	}
	m.passes.WithLabelValues(controllerLabel)
	for _, kind := range append([]string{errorUnknown}, pageErrors...) {
		m.errors.WithLabelValues(controllerLabel, kind)
	}
	return m
}

// Pass counts a pass that took so long.
func (m *Metrics) Pass(took time.Duration) {
	m.passes.WithLabelValues(controllerLabel).Observe(took.Seconds())
}

// Error counts a Machine that has got into an error of the type, which is an error type of the API, or a failed pass, for
// which the type is empty.
func (m *Metrics) Error(errorType string) {
	if errorType == "" {
		errorType = errorUnknown
	}
	m.errors.WithLabelValues(controllerLabel, errorType).Inc()
}

// NetworkError counts a Machine that has got into an error because of the NetworkConfiguration of that name.
func (m *Metrics) NetworkError(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[name] && len(m.names) >= mostNetworks {
		name = otherNetworks
	} else {
		m.names[name] = true
	}
	m.networks.WithLabelValues(name).Inc()
}

// Claims observes how long claims take until they are bound. It is for the informer of the operator's claims. A claim that
// was bound when the process started is not observed, because the time at which that happened is unknown. The clock is
// that of the API server, which sets the time of creation.
func (m *Metrics) Claims(now func() time.Time) toolscache.ResourceEventHandler {
	bound := func(object any) (*corev1.PersistentVolumeClaim, bool) {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		return claim, ok && claim.Status.Phase == corev1.ClaimBound
	}
	observe := func(claim *corev1.PersistentVolumeClaim) {
		if !m.sources.Leads() {
			return
		}
		class := ""
		if claim.Spec.StorageClassName != nil {
			class = *claim.Spec.StorageClassName
		}
		took := max(0, now().Sub(claim.CreationTimestamp.Time))
		m.provisioning.WithLabelValues(class).Observe(took.Seconds())
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if claim, ok := bound(object); ok && !initial {
				observe(claim)
			}
		},
		UpdateFunc: func(before, after any) {
			claim, ok := bound(after)
			// A watch that was interrupted may show the next claim of the name as a change of the former one.
			if old, was := bound(before); ok && (!was || old.UID != claim.UID) {
				observe(claim)
			}
		},
	}
}

// Describe sends the descriptions of all metrics.
func (m *Metrics) Describe(found chan<- *prometheus.Desc) {
	found <- descMachines
	found <- descVirtualMachines
	for _, c := range m.kept() {
		c.Describe(found)
	}
}

// Collect sends all metrics. A gauge whose source cannot be read is left out.
func (m *Metrics) Collect(found chan<- prometheus.Metric) {
	for _, c := range m.kept() {
		c.Collect(found)
	}
	if !m.sources.Leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	machines, err := m.sources.Machines(ctx)
	gauges(found, descMachines, machines, err, func(c Counted) []string { return []string{c.Phase, c.Template} })
	statuses, err := m.sources.VirtualMachines(ctx)
	gauges(found, descVirtualMachines, statuses, err, func(status string) []string { return []string{status} })
}

// kept are the metrics that are not computed at a scrape.
func (m *Metrics) kept() []prometheus.Collector {
	return []prometheus.Collector{m.passes, m.errors, m.provisioning, m.networks}
}

// gauges sends how often each value occurs.
func gauges[T comparable](found chan<- prometheus.Metric, desc *prometheus.Desc, values []T, err error, labels func(T) []string) {
	if err != nil {
		found <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	counts := map[T]int{}
	for _, value := range values {
		counts[value]++
	}
	for value, n := range counts {
		found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels(value)...)
	}
}

// CountMachines returns a source that reads the Machines of this operator from a cache.
func CountMachines(cached client.Reader) func(context.Context) ([]Counted, error) {
	return func(ctx context.Context) ([]Counted, error) {
		var list v1alpha1.MachineList
		if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		var counted []Counted
		for i := range list.Items {
			machine := &list.Items[i]
			if provider := machine.Spec.Provider; provider != "" && provider != v1alpha1.Provider {
				continue
			}
			template := cmp.Or(machine.Spec.Template, machine.Labels[v1alpha1.LabelTemplate])
			// A Machine without a phase has had no pass yet.
			counted = append(counted, Counted{Phase: cmp.Or(machine.Status.Phase, v1alpha1.PhasePending), Template: template})
		}
		return counted, nil
	}
}

// CountVirtualMachines returns a source that reads the VirtualMachines of Machines from the cache that is there at the time
// of the scrape; nil for none.
func CountVirtualMachines(cached func() client.Reader) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		reader := cached()
		if reader == nil {
			return nil, nil
		}
		var list kubevirtv1.VirtualMachineList
		if err := reader.List(ctx, &list, client.HasLabels{v1alpha1.LabelSourceMachine}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		var statuses []string
		for i := range list.Items {
			statuses = append(statuses, string(list.Items[i].Status.PrintableStatus))
		}
		return statuses, nil
	}
}
