package virtualmachine

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// scrapeTimeout bounds reading the cache for a scrape.
const scrapeTimeout = 5 * time.Second

var machines = prometheus.NewDesc("kvm_operator_virtualmachines", "VirtualMachines by the phase that is observed.", []string{"phase"}, nil)

// counter counts the VirtualMachines of a cache at each scrape, so that no machine is counted that is gone.
type counter struct{ reader client.Reader }

// phases are the values of the label; each is always there, so that an alert can tell none from unknown.
var phases = []v1.Phase{v1.PhaseStopped, v1.PhaseStarting, v1.PhaseRunning, v1.PhaseStopping, v1.PhaseFailed}

// count has the metric until the context ends. Of several operators in a process, as tests have, one counts.
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

// Describe sends the description of the metric.
func (counter) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- machines }

// Collect sends the metric. It sends none while the cache cannot be read.
func (c counter) Collect(found chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var list v1.VirtualMachineList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	counts := map[v1.Phase]int{}
	for i := range list.Items {
		counts[list.Items[i].Status.Phase]++
	}
	for _, phase := range phases {
		found <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
}
