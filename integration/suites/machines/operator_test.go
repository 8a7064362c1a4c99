package machines_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
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
	for _, path := range []string{"/healthz", "/readyz"} {
		if text, err := o.ask(t, path); err != nil {
			t.Errorf("%s: %s %s", path, text, err)
		}
	}
}

// ready returns an error until the operator is ready.
func (o *operator) ready(t *testing.T) error {
	_, err := o.ask(t, "/readyz")
	return err
}

// metrics returns the metrics in the text format.
func (o *operator) metrics(t *testing.T) string {
	t.Helper()
	text, err := o.ask(t, "/metrics")
	if err != nil {
		t.Fatal(text, err)
	}
	return text
}

func (o *operator) ask(t *testing.T, path string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+o.address+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return string(text), err
}
