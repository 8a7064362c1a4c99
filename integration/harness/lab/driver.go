package lab

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/deleter"
	"github.com/kvm-operator/kvm-operator/service/controller/drainer"
	"github.com/kvm-operator/kvm-operator/service/controller/unhealthynodeterminator"
)

// Driver runs single reconciles, so that a test controls what happens between two of them. All its operators share the
// operator's real cache.
type Driver struct {
	lab    *Lab
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	cache  cache.Cache
}

// Driver starts the cache and returns once it is filled.
func (l *Lab) Driver(t *testing.T) *Driver {
	t.Helper()
	d := &Driver{lab: l}
	var err error
	if d.scheme, err = service.NewScheme(); err != nil {
		t.Fatal(err)
	}
	if d.mapper, err = service.NewMapper(nil, nil); err != nil {
		t.Fatal(err)
	}
	options := service.CacheOptions(labels.Everything())
	options.Scheme, options.Mapper = d.scheme, d.mapper
	if d.cache, err = cache.New(l.RESTConfig(), options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := cluster.SetupIndexes(ctx, d.cache, service.CreatedKinds()); err != nil {
		cancel()
		t.Fatal(err)
	}
	if err := l.playDrainer(ctx, d.cache); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cache.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the cache ended with an error: %s", err)
		}
	})
	if !d.cache.WaitForCacheSync(ctx) {
		t.Fatal("the cache was not filled")
	}
	return d
}

// Instance is one life of the operator. It ends with a crash or with the test.
type Instance struct {
	Requests   *Recorder
	Reconciler *cluster.Reconciler
	// followers are the controllers that run beside it.
	followers []reconcile.Reconciler
}

// InstanceOptions are the options of an Instance.
type InstanceOptions struct {
	// Transport injects faults between the operator and the API server.
	Transport func(http.RoundTripper) http.RoundTripper
	// Reader answers reads in place of the cache.
	Reader func(client.Client) client.Client
	// Readiness reports whether a node is Ready. The default is AlwaysReady.
	Readiness state.Readiness
	// Settings change the operator's settings.
	Settings func(*state.Settings)
}

// AlwaysReady is a world without pods in which every node is Ready at once.
func AlwaysReady(n state.Node) (bool, string) { return n.Deployment != nil, "not made yet" }

// Instance starts a life of the operator, with an empty memory.
func (d *Driver) Instance(t *testing.T, o InstanceOptions) *Instance {
	t.Helper()
	recorder := &Recorder{}
	config := rest.CopyConfig(d.lab.RESTConfig())
	config.QPS = -1
	if o.Transport != nil {
		config.Wrap(o.Transport)
	}
	config.Wrap(recorder.Transport)
	options := client.Options{Scheme: d.scheme, Mapper: d.mapper}
	live, err := client.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	options.Cache = &client.CacheOptions{Reader: d.cache, EnableReadYourWritesConsistency: ptr.To(o.Reader == nil)}
	cached, err := client.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	if o.Reader != nil {
		cached = o.Reader(cached)
	}
	r := &cluster.Reconciler{
		Client: cached, Live: live, Settings: Settings(), Readiness: o.Readiness, Clock: clock.RealClock{},
		Issuer: pki.Embedded{Clock: clock.RealClock{}}, NewKey: pki.NewRandomKey,
	}
	if r.Readiness == nil {
		r.Readiness = AlwaysReady
	}
	if o.Settings != nil {
		o.Settings(&r.Settings)
	}
	if err := r.Init(); err != nil {
		t.Fatal(err)
	}
	f := observe.Follower{Client: cached, Live: live, Settings: r.Settings, Clock: r.Clock}
	d1, u, e := &deleter.Reconciler{Follower: f}, &unhealthynodeterminator.Reconciler{Follower: f}, &drainer.Endpoints{Follower: f}
	if err := errors.Join(d1.Init(), u.Init(), e.Init()); err != nil {
		t.Fatal(err)
	}
	return &Instance{Requests: recorder, Reconciler: r, followers: []reconcile.Reconciler{d1, u, e}}
}

// Reconcile runs one pass of each controller over the KVMConfig.
func (i *Instance) Reconcile(ctx context.Context, config *v1alpha1.KVMConfig) error {
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)}
	_, err := i.Reconciler.Reconcile(ctx, request)
	errs := []error{err}
	for _, f := range i.followers {
		_, err := f.Reconcile(ctx, request)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// quietPasses is how many successive reconciles without a request make a cluster converged.
const quietPasses = 3

// Settle reconciles until nothing changes: several successive reconciles succeed without a request, and done returns no
// error.
func (i *Instance) Settle(t *testing.T, config *v1alpha1.KVMConfig, done func(*v1alpha1.KVMConfig) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	var last error
	for quiet := 0; quiet < quietPasses; {
		before := len(i.Requests.All())
		last = i.Reconcile(ctx, config)
		if last == nil && done != nil {
			last = done(config)
		}
		if last == nil && len(i.Requests.All()) == before {
			quiet++
		} else {
			quiet = 0
		}
		if ctx.Err() != nil {
			t.Fatalf("KVMConfig %s does not settle: last error %v, requests since: %v", config.Name, last, i.Requests.All()[before:])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
