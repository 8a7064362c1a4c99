// Package cluster is the controller that reconciles the objects of a workload cluster on the management cluster.
package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/randomkey"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/vault"
)

// Name of the controller.
const Name = "cluster"

// Reconciler reconciles the management cluster with a KVMConfig.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Settings are the operator's.
	Settings state.Settings
	// Issuer issues certificates, and NewKey generates random keys.
	Issuer pki.Issuer
	// Vault has the keys of CAs; nil if there is no Vault.
	Vault  vault.Revoker
	NewKey randomkey.Source
	// Readiness returns whether a node is ready for the rollout. Tests replace it.
	Readiness state.Readiness
	// Workloads are the connections to the workload clusters; if nil, the operator does not connect to them and only
	// creates machines.
	Workloads *Workloads
	Clock     clock.PassiveClock
	// ClockDifference is the clock skew between the API server, which Clock follows, and this machine; nil if it is not
	// measured.
	ClockDifference func() time.Duration
	Events          events.EventRecorder
	// Console reads the end of what the machine of a node pod has printed; nil if that is not possible.
	Console func(ctx context.Context, namespace, pod string) (string, error)
	// Outdated returns what the definition of a kind lacks: nothing is reconciled then. Nil if the definitions are
	// known to be current.
	Outdated func(ctx context.Context) string
	// silent are the pods whose consoles did not come in time.
	silent silence

	reconciler.Loop[*v1alpha1.KVMConfig, *state.Cluster]

	engine  *apply.Engine
	planner plan.Planner
}

// Init creates the engine and the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.engine.Adopts = key.Adopts
	r.planner = plan.NewPlanner()
	if r.Readiness != nil {
		r.planner.Readiness = r.Readiness
	}
	if r.Workloads != nil && r.Workloads.Addresses != nil {
		r.planner.Addresses = r.Workloads.Addresses
	}
	r.Loop = reconciler.Loop[*v1alpha1.KVMConfig, *state.Cluster]{
		Name: Name, Controller: r, Chain: r.chain(),
		Finalizer: key.FinalizerCluster, Adds: []string{key.FinalizerCluster, key.FinalizerDeleter, key.FinalizerTerminator},
		Finalizers: r.engine, Outdated: r.Outdated,
		Follow: func(_ context.Context, s *state.Cluster) (bool, error) { return r.Workloads.follow(s), nil },
	}
	return microerror.Mask(r.Chain.Validate())
}

// Get returns the KVMConfig of a request, if it is to be reconciled.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, bool, error) {
	config, gate, err := r.reader().Config(ctx, request.NamespacedName, key.FinalizerCluster)
	switch {
	case err != nil:
		return nil, false, err
	case gate == observe.Open:
		return config, true, nil
	case gate == observe.Gone:
		r.Workloads.forget(request.NamespacedName)
		return nil, false, nil
	case gate == observe.Original:
		err = r.tellOriginal(ctx, config)
	}
	r.Workloads.unmanageMembers(request.NamespacedName)
	return nil, false, err
}

func (r *Reconciler) reader() observe.Reader { return observe.Reader{Cached: r.Client, Live: r.Live} }

// Again returns the earliest of: when the chain wants to run again, when bootstrap tokens change, and when to check
// again nodes that are not Ready, nodes that wait for those, masters without a majority, snapshots of etcd, and retired
// data.
func (r *Reconciler) Again(s *state.Cluster, after time.Duration) time.Duration {
	now := r.Clock.Now()
	delays := []time.Duration{
		after, nextHangCheck(nodeStatuses(s, now)), until(s.NextSnapshotLook, now), until(s.NextLate(), now), until(s.LostAt(), now), until(s.NextRemoval(), now),
	}
	if s.Tokens.Known() && r.Workloads != nil {
		delays = append(delays, max(s.Tokens.Next().Sub(now), time.Second))
	}
	delays = slices.DeleteFunc(delays, func(d time.Duration) bool { return d <= 0 })
	if len(delays) == 0 {
		return 0
	}
	return slices.Min(delays)
}

// until returns how long it takes until shortly after t; zero if t is not set or has passed.
func until(t, now time.Time) time.Duration {
	if t.IsZero() || t.Before(now) {
		return 0
	}
	return t.Sub(now) + time.Second
}
