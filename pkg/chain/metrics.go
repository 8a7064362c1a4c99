package chain

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	operations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "operatorkit_controller_operation",
		Help:    "Seconds that a handler took, by controller, handler and operation (EnsureCreated, EnsureDeleted).",
		Buckets: []float64{.001, .01, .1, 1, 10},
	}, []string{"controller", "resource", "operation"})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "operatorkit_controller_error_total",
		Help: "Errors of a handler that are retried, by controller and handler.",
	}, []string{"controller", "resource"})
	unfinished = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kvm_operator_handler_unfinished",
		Help: "1 for each handler that is not done with an object, by controller, object and reason.",
	}, []string{"controller", "object", "resource", "reason"})
)

func init() { metrics.Registry.MustRegister(operations, failures, unfinished) }

// Observe records what became of each handler in a run over the named object.
func Observe(controller, object string, deleting bool, results []Result) {
	operation := "EnsureCreated"
	if deleting {
		operation = "EnsureDeleted"
	}
	ForgetObject(object)
	for _, r := range results {
		if len(r.BlockedBy) == 0 {
			operations.WithLabelValues(controller, r.Handler, operation).Observe(r.Duration.Seconds())
		}
		condition := r.Condition(r.Handler)
		if condition.Reason == ReasonRetrying {
			failures.WithLabelValues(controller, r.Handler).Inc()
		}
		if !r.Done() {
			unfinished.WithLabelValues(controller, object, r.Handler, condition.Reason).Set(1)
		}
	}
}

// ForgetObject drops what is recorded of an object that is gone.
func ForgetObject(object string) { unfinished.DeletePartialMatch(prometheus.Labels{"object": object}) }
