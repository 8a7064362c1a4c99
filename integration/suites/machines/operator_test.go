package machines_test

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

// operator is the operator of Machines, in this process. It may do anything: the chart's tests are about its rights.
type operator struct {
	// Requests are its requests to the API server.
	Requests *lab.Recorder

	address string // of metrics and probes
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error
}

type option func(*machines.Config)

// wrapped lets a transport stand between the operator and the API server.
func wrapped(by transport.WrapperFunc) option {
	return func(c *machines.Config) { c.REST.Wrap(by) }
}

// namespaced are the resources of all namespaces that an operator asks for.
var namespaced = []string{
	"machines", "networkconfigurations", "virtualmachines", "virtualmachineinstances", "network-attachment-definitions",
	"persistentvolumeclaims", "secrets", "configmaps", "datavolumes",
}

// confined keeps an operator to one namespace, so that others can be at work beside it: what it asks of all namespaces, it
// gets of that one. Its record of requests has what it asked.
func confined(namespace string) option {
	return wrapped(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			folder, resource := path.Split(request.URL.Path)
			if slices.Contains(namespaced, resource) && !strings.Contains(folder, "/namespaces/") {
				request = request.Clone(request.Context())
				request.URL.Path = folder + "namespaces/" + namespace + "/" + resource
			}
			return next.RoundTrip(request)
		})
	})
}

// start starts an operator with the settings that it has without flags.
func start(options ...option) (*operator, error) {
	config := machines.Config{
		REST: rest.CopyConfig(cluster.RESTConfig()), Interval: interval,
		Settings: vitistack.Settings{
			ManagedBy: "kubevirt-operator", AccessMode: "ReadWriteMany", VolumeMode: "Block", MACSet: 0x12, CNIVersion: "1.0.0",
		},
	}
	for _, option := range options {
		option(&config)
	}
	o := &operator{Requests: &lab.Recorder{}, ended: make(chan struct{})}
	config.REST.Wrap(o.Requests.Transport)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	service, err := machines.New(ctx, config)
	if err != nil {
		cancel()
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(service.Metrics())
	const loopback = "127.0.0.1:0"
	servers, err := machines.Listen(machines.Serving{Metrics: loopback, Probes: loopback, Gatherer: registry, Unready: func() string {
		if ready, why := service.Ready(); !ready {
			return why
		}
		return ""
	}})
	if err != nil {
		cancel()
		return nil, err
	}
	o.address = servers.Address(loopback)
	var running sync.WaitGroup
	var served error
	running.Go(func() { served = servers.Serve(ctx) })
	running.Go(func() {
		o.err = service.Run(ctx)
		cancel()
	})
	go func() {
		running.Wait()
		o.err = errors.Join(o.err, served)
		close(o.ended)
	}()
	return o, nil
}

// serve runs an operator for the namespace alone until stop or the end of the test.
func (p *place) serve(options ...option) *operator {
	p.Helper()
	return serve(p.T, append(options, confined(p.namespace))...)
}

// serve runs an operator until stop or the end of the test.
func serve(t *testing.T, options ...option) *operator {
	t.Helper()
	o, err := start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.stop(t) })
	return o
}

// stop ends an operator and waits until it has ended.
func (o *operator) stop(t *testing.T) {
	t.Helper()
	if err := o.close(); err != nil {
		t.Errorf("the operator ended with an error: %s", err)
	}
}

func (o *operator) close() error {
	o.cancel()
	<-o.ended
	err := o.err
	o.err = nil
	return err
}

// healthy fails the test unless both probes answer 200.
func (o *operator) healthy(t *testing.T) {
	t.Helper()
	for _, probe := range []string{"/healthz", "/readyz"} {
		if _, err := loopback.Get("http://" + o.address + probe); err != nil {
			t.Error(err)
		}
	}
}

// ready returns an error until the operator is ready.
func (o *operator) ready() error {
	_, err := loopback.Get("http://" + o.address + "/readyz")
	return err
}

// metrics returns the metrics in the text format.
func (o *operator) metrics(t *testing.T) string {
	t.Helper()
	text, err := loopback.Get("http://" + o.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
