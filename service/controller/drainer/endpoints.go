package drainer

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// EndpointsName is the name of the controller Endpoints.
const EndpointsName = Name + "-endpoints"

// Kinds are the kinds that only this controller writes.
func Kinds() []client.Object { return apply.Kinds(Resources()) }

// Resources are the handlers of the chain that are functions from the state to objects.
func Resources() []apply.Resource[*state.Cluster] { return apply.Resources(newEndpointsChain(nil)) }

// Endpoints is the only writer of the addresses behind the Services of a cluster. It has its own workers, so that
// neither a drain nor a cluster whose other objects cannot be written delays it.
type Endpoints struct {
	observe.Follower

	// Members returns what is known of a cluster's etcd; nil if the operator does not connect to etcd.
	Members func(cluster types.NamespacedName) etcd.State

	reconciler.Loop[*v1alpha1.KVMConfig, *state.Cluster]

	condition reconciler.OwnCondition
}

// Init builds the chain. It fails if the chain is inconsistent.
func (r *Endpoints) Init() error {
	engine := apply.New(r.Client, r.Live, r.Clock)
	engine.Adopts = key.Adopts
	r.condition = reconciler.OwnCondition{Type: state.ConditionEndpoints, Owner: key.Operator + "-" + Name, Writer: engine, Clock: r.Clock}
	// The controller has no finalizer: what it does not delete itself goes with the namespace.
	r.Loop = reconciler.Loop[*v1alpha1.KVMConfig, *state.Cluster]{
		Name: EndpointsName, Controller: r, Chain: newEndpointsChain(engine), Outdated: r.Follower.Outdated,
	}
	return microerror.Mask(r.Chain.Validate())
}

// SetupWithManager makes the controller run when a KVMConfig, its node pods, its namespace or its endpoints change, and
// when the members of its etcd do.
func (r *Endpoints) SetupWithManager(m manager.Manager) error {
	b := builder.ControllerManagedBy(m).Named(EndpointsName).For(&v1alpha1.KVMConfig{}).
		WithOptions(reconciler.Options(m, EndpointsName, reconcileTimeout)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.Reader().OfCluster))
	for _, kind := range append(Kinds(), &corev1.Namespace{}) {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.Reader().OfOwner))
	}
	if r.Workloads != nil {
		b = b.WatchesRawSource(r.Workloads.Source())
	}
	return microerror.Mask(b.Complete(&r.Loop))
}

// Get returns the KVMConfig of a request.
func (r *Endpoints) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, bool, error) {
	config, gate, err := r.Reader().Config(ctx, request.NamespacedName, key.FinalizerCluster)
	return config, gate == observe.Open, err
}

// Again returns when the chain wants to run again.
func (*Endpoints) Again(_ *state.Cluster, after time.Duration) time.Duration { return after }
