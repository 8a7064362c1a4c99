package smolvm

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// scrapeTimeout bounds reading the cache for a scrape.
const scrapeTimeout = 5 * time.Second

var (
	toRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kvm_operator_smolvm_time_to_running_seconds",
		Help:    "Seconds from the creation of a SmolVM until its machine runs.",
		Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600},
	})
	requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kvm_operator_smolvm_runtime_request_seconds",
		Help:    "Seconds that requests to runtimes took, by operation and result.",
		Buckets: []float64{.01, .1, 1, 10, 60, 300},
	}, []string{"operation", "result"})

	smolVMs = prometheus.NewDesc("kvm_operator_smolvms", "SmolVMs by the phase that is observed and the node that has them.", []string{"phase", "node"}, nil)
	ages    = prometheus.NewDesc("kvm_operator_smolvmnode_heartbeat_age_seconds", "Seconds since the runtime of a node last reported.", []string{"node"}, nil)
	readies = prometheus.NewDesc("kvm_operator_smolvmnode_ready", "1 if machines can run on a node, as its runtime says.", []string{"node"}, nil)
)

func init() { metrics.Registry.MustRegister(toRunning, requests) }

// ObserveRequest records a request to a runtime, as nodes.Options.Asked says.
func ObserveRequest(action, result string, took time.Duration) {
	requests.WithLabelValues(action, result).Observe(took.Seconds())
}

// observeRun records how long it took until a machine runs, when it does for the first time. A spec that was changed before
// may have wanted something else at first.
func observeRun(before, after *v1alpha1.SmolVM, now time.Time) {
	switch before.Status.Phase {
	case v1alpha1.PhaseRunning, v1alpha1.PhaseStopped, v1alpha1.PhaseUnknown, v1alpha1.PhaseDeleting:
		return // it may have run before
	}
	if after.Status.Phase == v1alpha1.PhaseRunning && after.Generation == 1 && before.Status.StartTime == nil {
		toRunning.Observe(now.Sub(after.CreationTimestamp.Time).Seconds())
	}
}

// counter counts the SmolVMs and SmolVMNodes of a cache at each scrape, so that nothing is counted that is gone.
type counter struct {
	reader client.Reader
	clock  clock.PassiveClock
}

// allPhases are the values of the label; each is always there for each node, so that an alert can tell none from unknown.
var allPhases = []v1alpha1.Phase{
	v1alpha1.PhasePending, v1alpha1.PhaseScheduled, v1alpha1.PhaseCreated, v1alpha1.PhaseRunning, v1alpha1.PhaseStopped, v1alpha1.PhaseUnknown,
	v1alpha1.PhaseFailed, v1alpha1.PhaseDeleting,
}

// count has the metrics until the context ends. Of several operators in a process, as tests have, one counts.
func (c counter) count(ctx context.Context) error {
	err := metrics.Registry.Register(c)
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return nil
	}
	if err == nil {
		<-ctx.Done()
		metrics.Registry.Unregister(c)
	}
	return err
}

// Describe sends the descriptions of the metrics.
func (counter) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{smolVMs, ages, readies} {
		descriptions <- d
	}
}

// Collect sends the metrics. It sends none while the cache cannot be read.
func (c counter) Collect(found chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var vms v1alpha1.SmolVMList
	var nodes v1alpha1.SmolVMNodeList
	for _, list := range []client.ObjectList{&vms, &nodes} {
		if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
	}
	counts := map[string]map[v1alpha1.Phase]int{"": {}}
	gauge := func(what *prometheus.Desc, value float64, labels ...string) {
		found <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		counts[n.Name] = map[v1alpha1.Phase]int{}
		ready := 0.0
		if meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionReady) {
			ready = 1
		}
		gauge(readies, ready, n.Name)
		if beat := n.Status.HeartbeatTime; beat != nil {
			gauge(ages, max(0, c.clock.Since(beat.Time).Seconds()), n.Name)
		}
	}
	for i := range vms.Items {
		s := &vms.Items[i].Status
		if counts[s.NodeName] == nil {
			counts[s.NodeName] = map[v1alpha1.Phase]int{}
		}
		counts[s.NodeName][s.Phase]++
	}
	for node, of := range counts {
		for _, phase := range allPhases {
			gauge(smolVMs, float64(of[phase]), string(phase), node)
		}
	}
}
