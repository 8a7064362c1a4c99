// Package lab runs the operator against a real management cluster, for tests.
package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/service"
)

// Lab is a management cluster with the CustomResourceDefinitions installed.
type Lab struct {
	*managementcluster.Cluster
	// Client is an administrator's client without a cache.
	Client client.Client
}

// Start starts a management cluster. Close it when done.
func Start(ctx context.Context, options managementcluster.Options) (*Lab, error) {
	mc, err := managementcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	l, err := On(mc)
	if err != nil {
		return nil, stopAnd(mc, err)
	}
	return l, nil
}

// On returns a Lab in a management cluster that runs, in which it installs the operator's definitions. The cluster stays
// the caller's.
func On(mc *managementcluster.Cluster) (*Lab, error) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	l := &Lab{Cluster: mc}
	if _, err := envtest.InstallCRDs(mc.RESTConfig(), envtest.CRDInstallOptions{Paths: []string{crds()}, ErrorIfPathMissing: true}); err != nil {
		return nil, fmt.Errorf("installing CRDs: %w", err)
	}
	scheme, err := service.NewScheme()
	if err != nil {
		return nil, err
	}
	l.Client, err = client.New(mc.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func stopAnd(mc *managementcluster.Cluster, err error) error {
	if stopErr := mc.Stop(); stopErr != nil {
		return fmt.Errorf("%w (and stopping the cluster: %w)", err, stopErr)
	}
	return err
}

// crds returns the folder with the generated CustomResourceDefinitions, relative to this file.
func crds() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "helm", "kvm-operator", "crds")
}

// Settings returns the operator's defaults.
func Settings() state.Settings {
	return state.Settings{
		Guest:          cloudconfig.Settings{RegistryDomain: "registry.k8s.io", BinaryBaseURL: "https://dl.k8s.io"},
		RunnerImage:    "docker.io/kvm-operator/kvm-operator:4.0.0",
		ClusterDomain:  "cluster.local",
		FlatcarChannel: "stable",
		ClusterRole:    "kvm-operator-node",
		Pods:           state.PodSettings{ZoneSpread: state.ZoneSpreadPreferred},
		Machine:        state.MachineSettings{MaxImageFile: "8G", DiskRequestPercent: 100},
	}
}

// Operator is a running operator.
type Operator struct {
	// Requests records the operator's requests to the API server.
	Requests *Recorder

	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	report func(error)
}

// Stop stops the operator, waits until it has ended and reports its error to the test.
func (o *Operator) Stop() {
	if err := o.Close(); err != nil && o.report != nil {
		o.report(err)
	}
}

// Close stops the operator, waits until it has ended and returns its error. It may be called again.
func (o *Operator) Close() error {
	o.cancel()
	<-o.ended
	return o.err
}

// Ended is closed when the operator has ended, by itself or on request.
func (o *Operator) Ended() <-chan struct{} { return o.ended }

// Option changes how the operator runs.
type Option func(*service.Config)

// Run runs the operator in this process until Stop or the end of the test.
func (l *Lab) Run(t testing.TB, options ...Option) *Operator {
	t.Helper()
	o, err := l.StartOperator(options...)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	o.report = func(err error) { once.Do(func() { t.Errorf("the operator ended with an error: %s", err) }) }
	t.Cleanup(o.Stop)
	return o
}

// StartOperator runs the operator in this process until Close, for operators that outlive a test.
func (l *Lab) StartOperator(options ...Option) (*Operator, error) {
	recorder := &Recorder{}
	config := service.Config{REST: l.RESTConfig(), Settings: Settings(), Selector: labels.Everything(), MachinesOnly: true, Release: l.Release}
	for _, option := range options {
		option(&config)
	}
	config.REST = rest.CopyConfig(config.REST)
	config.REST.Wrap(recorder.Transport)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := service.New(ctx, config)
	if err != nil {
		cancel()
		return nil, err
	}
	o := &Operator{Requests: recorder, cancel: cancel, ended: make(chan struct{})}
	go func() {
		o.err = s.Run(ctx)
		close(o.ended)
	}()
	return o, nil
}

// Eventually waits until the condition returns no error. It fails the test with the last error after the timeout.
func Eventually(t testing.TB, timeout time.Duration, condition func() error) {
	t.Helper()
	poll.Eventually(t, timeout, 20*time.Millisecond, condition)
}
