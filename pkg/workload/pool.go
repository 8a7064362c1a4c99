// Package workload holds one cached client for each workload cluster. Each has connections, caches and a goroutine of its
// own and shares nothing but a map with the others, so that an API server that is dead, slow or lies is the trouble of its
// own cluster only.
package workload

import (
	"context"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/fence"
)

// Options are the same for all clusters of a Pool.
type Options struct {
	// Kinds are cached and watched besides Nodes and CertificateSigningRequests, restricted to the operator's own objects
	// (label key.LabelManagedBy). Whoever writes another kind through Cluster.Client makes the client begin to watch it.
	Kinds []client.Object
	// Scheme knows the Kinds, Nodes and CertificateSigningRequests, and Mapper their resources by heart: nothing is asked
	// for discovery.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
	// Changed is called when something that a reconcile reads has changed: state, Nodes, requests for certificates or
	// objects of Kinds. It must not block.
	Changed func(types.NamespacedName)
	// Fence is asked before anything is changed in a cluster; nil lets everything through.
	Fence *fence.Fence
	// Clock measures the pauses between attempts. Default: the real one.
	Clock clock.Clock
}

// Pool is all workload clusters that are known. It is a manager.Runnable. Its methods may be called from several
// goroutines; none of them waits for anything.
type Pool struct {
	options Options

	mu       sync.Mutex
	clusters map[types.NamespacedName]*Cluster
	// running is nil until Start is called.
	running context.Context // the goroutines of clusters that come later live as long
	// ended counts the goroutines of clusters.
	ended sync.WaitGroup
}

// CustomResourceDefinitions are read as protobuf, like all other kinds: what protobuf becomes is known before it is decoded.
var _ = apiutil.AddToProtobufScheme(apiextensionsv1.AddToScheme)

// NewPool makes a Pool that connects to nothing before it is started.
func NewPool(options Options) *Pool {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Changed == nil {
		options.Changed = func(types.NamespacedName) {}
	}
	return &Pool{options: options, clusters: map[types.NamespacedName]*Cluster{}}
}

// Start runs the clusters, those that Ensure named before included, until the context ends and all connections are closed.
func (p *Pool) Start(ctx context.Context) error {
	p.mu.Lock()
	p.running = ctx
	for _, c := range p.clusters {
		p.launch(c)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	for _, c := range p.clusters {
		c.end()
	}
	p.mu.Unlock()
	p.ended.Wait()
	return nil
}

// launch runs a cluster. Nothing is launched once the Pool has ended, for then the goroutines are being waited for.
func (p *Pool) launch(c *Cluster) {
	if p.running == nil || p.running.Err() != nil {
		return
	}
	ctx := p.running
	p.ended.Go(func() { c.run(ctx) })
}

// Ensure returns the cluster of the given name and makes it when there is none. Other addresses are taken over by the
// cluster that exists; other certificates or another server name replace it by a new one, which connects anew. The slices
// of the Access must not be changed afterwards.
func (p *Pool) Ensure(name types.NamespacedName, a Access) *Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[name]
	if c != nil && c.access.trustsLike(a) {
		c.reachAt(a.Addresses)
		return c
	}
	if c != nil {
		c.end()
	}
	a.Addresses = slices.Clone(a.Addresses)
	c = newCluster(name, a, p.options)
	p.clusters[name] = c
	p.launch(c)
	return c
}

// Get returns the cluster of the given name, or nil when Ensure has not named it.
func (p *Pool) Get(name types.NamespacedName) *Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clusters[name]
}

// Forget closes the connections to a cluster that is gone.
func (p *Pool) Forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[name]; c != nil {
		c.end()
		delete(p.clusters, name)
	}
}
