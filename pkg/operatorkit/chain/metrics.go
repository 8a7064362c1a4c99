package chain

import (
	"time"

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
	passes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "operatorkit_controller_event",
		Help:    "Seconds that a controller took for one object, by controller and event (update, delete).",
		Buckets: []float64{.001, .01, .1, 1, 10},
	}, []string{"controller", "event"})
	lastPass = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "operatorkit_controller_last_reconciled",
		Help: "Unix time in seconds at which a controller last finished with an object.",
	}, []string{"controller"})
)

func init() { metrics.Registry.MustRegister(operations, failures, unfinished, passes, lastPass) }

// ObservePass records that a controller has finished with an object, which took so long.
func ObservePass(controller string, deleting bool, took time.Duration) {
	event := "update"
	if deleting {
		event = "delete"
	}
	passes.WithLabelValues(controller, event).Observe(took.Seconds())
	lastPass.WithLabelValues(controller).SetToCurrentTime()
}

// Observe records the result of each handler in a run over the named object.
func Observe(controller, object string, deleting bool, results []Result) {
	operation := "EnsureCreated"
	if deleting {
		operation = "EnsureDeleted"
	}
	Forget(controller, object)
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

// Forget removes what a controller has recorded of an object that it no longer reconciles.
func Forget(controller, object string) {
	unfinished.DeletePartialMatch(prometheus.Labels{"controller": controller, "object": object})
}
