// Package workload holds one cached client for each workload cluster. Each has its own connections, caches and
// goroutine and shares only a map with the others, so that an API server that is down, slow or malicious affects only
// its own cluster.
package workload

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/sessions"
)

// Options are the same for all clusters of a Pool.
type Options struct {
	// Kinds are cached and watched in addition to Nodes and CertificateSigningRequests, restricted to the operator's
	// own objects (label key.LabelManagedBy). Writing another kind through Cluster.Client makes the client start a
	// watch of it.
	Kinds []client.Object
	// Scheme knows the Kinds, Nodes and CertificateSigningRequests, and Mapper has their resources built in, so that
	// discovery is not needed.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
	// Changed is called when something that a reconcile reads has changed: state, Nodes, certificate signing requests
	// or objects of Kinds. It must not block.
	Changed func(types.NamespacedName)
	// Fence is checked before anything is changed in a cluster; nil permits everything.
	Fence *fence.Fence
	// Clock measures the pauses between attempts. The default is the real clock.
	Clock clock.Clock
}

// Pool is all known workload clusters. It is a manager.Runnable. Its methods are safe for concurrent use and, except
// Start, never block.
type Pool struct {
	options  Options
	sessions *sessions.Sessions[*Cluster]
}

// CustomResourceDefinitions are read as protobuf, like all other kinds, because the memory that protobuf takes is known
// before it is decoded.
var _ = apiutil.AddToProtobufScheme(apiextensionsv1.AddToScheme)

// NewPool returns a Pool that connects to clusters once it is started.
func NewPool(options Options) *Pool {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Changed == nil {
		options.Changed = func(types.NamespacedName) {}
	}
	run := func(ctx context.Context, c *Cluster) { c.run(ctx) }
	return &Pool{options: options, sessions: sessions.New(run, (*Cluster).end)}
}

// Start runs the clusters, including those that Ensure added before, until the context ends and all connections are
// closed.
func (p *Pool) Start(ctx context.Context) error { return p.sessions.Start(ctx) }

// Ensure returns the cluster of the given name and creates it if there is none. An existing cluster takes over changed
// addresses; if the certificates or the server name changed, a new cluster replaces it and reconnects. The slices of
// the Access must not be changed afterwards.
func (p *Pool) Ensure(name types.NamespacedName, a Access) *Cluster {
	c, created := p.sessions.Ensure(name, func(c *Cluster) bool { return c.access.trustsLike(a) }, func() *Cluster {
		a.Addresses = slices.Clone(a.Addresses)
		return newCluster(name, a, p.options)
	})
	if !created {
		c.reachAt(a.Addresses)
	}
	return c
}

// Get returns the cluster of the given name, or nil if Ensure was not called for it.
func (p *Pool) Get(name types.NamespacedName) *Cluster {
	c, _ := p.sessions.Get(name)
	return c
}

// Forget closes the connections to a cluster that is gone.
func (p *Pool) Forget(name types.NamespacedName) { p.sessions.End(name) }
