package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Meters count what machines do. Labels have no names of machines, of which there is no end.
type Meters struct {
	registry            *prometheus.Registry
	requests            *prometheus.CounterVec
	boot, command, pull prometheus.Histogram
}

// NewMeters returns Meters with the names of smolvm's metrics.
func NewMeters() *Meters {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help,
			// From 50 ms, a command, to 14 minutes, a large image.
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 15),
		})
	}
	m := &Meters{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "smolvm_api_requests_total", Help: "Requests to the API, by route.",
		}, []string{"method", "status", "path"}),
		boot:    seconds("smolvm_vm_boot_seconds", "Seconds from the start of a machine until its guest answers."),
		command: seconds("smolvm_exec_seconds", "Seconds that commands in guests take."),
		pull:    seconds("smolvm_image_pull_seconds", "Seconds that pulling an image takes."),
	}
	m.registry.MustRegister(m.requests, m.boot, m.command, m.pull)
	return m
}

// Booted counts a machine that took a time to answer after its start.
func (m *Meters) Booted(took time.Duration) { m.boot.Observe(took.Seconds()) }

// Pulled counts an image that took a time to pull.
func (m *Meters) Pulled(took time.Duration) { m.pull.Observe(took.Seconds()) }

func (m *Meters) executed(begun time.Time) { m.command.Observe(time.Since(begun).Seconds()) }

// Labels of requests that are not the API's. Clients choose methods and paths.
const (
	otherMethod = "other"
	otherPath   = "unmatched"
)

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions}

// count counts a request. The route is nil if there is none.
func (m *Meters) count(method string, status int, found *route) {
	if !slices.Contains(methods, method) {
		method = otherMethod
	}
	path := otherPath
	if found != nil {
		path = found.pattern
	}
	m.requests.WithLabelValues(method, strconv.Itoa(status), path).Inc()
}

// handler serves the metrics, and the numbers of machines.
func (m *Meters) handler(machines Machines, patience time.Duration) http.Handler {
	population := prometheus.NewRegistry()
	population.MustRegister(&census{
		machines: machines, patience: patience,
		total:   prometheus.NewDesc("smolvm_machines_total", "Machines.", nil, nil),
		running: prometheus.NewDesc("smolvm_machines_running", "Machines that run.", nil, nil),
	})
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, population}, promhttp.HandlerOpts{DisableCompression: true})
}

// census counts the machines when it is asked. If they do not answer, there are no numbers.
type census struct {
	machines       Machines
	patience       time.Duration
	total, running *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *census) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- c.total
	descriptions <- c.running
}

// Collect implements prometheus.Collector.
func (c *census) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	health, err := c.machines.Health(ctx)
	if err != nil {
		return
	}
	metrics <- prometheus.MustNewConstMetric(c.total, prometheus.GaugeValue, float64(health.Machines.Total))
	metrics <- prometheus.MustNewConstMetric(c.running, prometheus.GaugeValue, float64(health.Machines.Running))
}
