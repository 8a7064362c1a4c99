package smolvmruntime

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// meters are the agent's metrics.
type meters struct {
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	reports  *prometheus.CounterVec
	starts   prometheus.Counter
	ready    prometheus.Gauge
	orphans  prometheus.Gauge
	kept     prometheus.Gauge
	deleted  prometheus.Counter
	ends     prometheus.Gauge
	reported prometheus.Gauge
}

func newMeters() *meters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &meters{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "smolvm_runtime_requests_total", Help: "Requests to the node API."}, []string{"method", "path", "status"}),
		reports:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "smolvm_runtime_reports_total", Help: "Reports of the SmolVMNode, by result."}, []string{"result"}),
		starts:   counter("smolvm_runtime_smolvm_starts_total", "How often smolvm was started."),
		ready:    gauge("smolvm_runtime_ready", "1 if machines can run, else 0."),
		orphans:  gauge("smolvm_runtime_orphans", "Machines of this cluster that belong to no SmolVM."),
		kept:     gauge("smolvm_runtime_kept_machines", "Machines that no SmolVM of this node has, and that are never deleted."),
		deleted:  counter("smolvm_runtime_orphans_deleted_total", "Orphans that were deleted."),
		ends:     gauge("smolvm_runtime_certificate_end_seconds", "When the certificate of the node API ends, in seconds since 1970."),
		reported: gauge("smolvm_runtime_last_report_seconds", "When the SmolVMNode was last written, in seconds since 1970."),
	}
	m.registry.MustRegister(m.requests, m.reports, m.starts, m.ready, m.orphans, m.kept, m.deleted, m.ends, m.reported)
	return m
}

func (m *meters) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}

// request counts a request. Clients choose methods, so unknown ones count as one.
func (m *meters) request(method, pattern string, status int) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		method = patternOther
	}
	m.requests.WithLabelValues(method, pattern, strconv.Itoa(status)).Inc()
}

func (m *meters) report(err error, now time.Time) {
	if err != nil {
		m.reports.WithLabelValues("error").Inc()
		return
	}
	m.reports.WithLabelValues("ok").Inc()
	m.reported.Set(float64(now.Unix()))
}

// strays sets how many machines no SmolVM of this node has.
func (m *meters) strays(orphans, kept int) {
	m.orphans.Set(float64(orphans))
	m.kept.Set(float64(kept))
}

func (m *meters) health(ok bool) {
	m.ready.Set(0)
	if ok {
		m.ready.Set(1)
	}
}
