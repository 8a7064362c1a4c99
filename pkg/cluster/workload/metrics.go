package workload

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var reachable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kvm_operator_workload_cluster_reachable",
	Help: "1 for each workload cluster whose API is followed by watches, 0 for the others, by cluster and reason.",
}, []string{"cluster", "reason"})

func init() { metrics.Registry.MustRegister(reachable) }

// observe records the state of the named cluster.
func observe(cluster string, s State) {
	forgetMetrics(cluster)
	value := 0.0
	if s.Phase == Connected {
		value = 1
	}
	reachable.WithLabelValues(cluster, string(s.Reason)).Set(value)
}

// forgetMetrics deletes the metrics of the named cluster.
func forgetMetrics(cluster string) {
	reachable.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
}
