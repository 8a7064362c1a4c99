// Package deleter is the controller that deletes the Nodes of a workload cluster whose machines are gone.
package deleter

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// Name of the controller.
const Name = "deleter"

// reconcileTimeout bounds one reconcile of one cluster.
const reconcileTimeout = time.Minute

// Reconciler deletes the stale Nodes of workload clusters.
type Reconciler struct {
	observe.Follower

	reconciler.Loop[*v1alpha1.KVMConfig, *state.Machines]

	turns     *chain.Turns[*state.Machines]
	condition reconciler.OwnCondition
}

// Init builds the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	engine := apply.New(r.Client, r.Live, r.Clock)
	r.turns = chain.NewTurns(func(m *state.Machines) string { return client.ObjectKeyFromObject(m.Config).String() }, clock.RealClock{})
	r.condition = reconciler.OwnCondition{Type: state.ConditionNodesPruned, Owner: key.Operator + "-" + Name, Writer: engine, Clock: r.Clock}
	r.Loop = reconciler.Loop[*v1alpha1.KVMConfig, *state.Machines]{
		Name: Name, Controller: r, Chain: newChain(engine, r.Workloads, r.turns), Finalizer: key.FinalizerDeleter, Finalizers: engine, Outdated: r.Follower.Outdated,
	}
	return microerror.Mask(r.Chain.Validate())
}

// SetupWithManager makes the controller run when a KVMConfig or a workload cluster changes, and when a node pod ends.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	b := builder.ControllerManagedBy(m).Named(Name).For(&v1alpha1.KVMConfig{}, builder.WithPredicates(observe.Spec(state.ConditionNodesPruned))).
		WithOptions(reconciler.Options(m, Name, reconcileTimeout))
	if r.Workloads != nil {
		b = b.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.Reader().OfCluster), builder.WithPredicates(ended)).WatchesRawSource(r.Workloads.Source())
	}
	return microerror.Mask(b.Complete(&r.Loop))
}

// ended passes the events of pods that have ended or are gone.
var ended = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return joining.Ended(e.Object.(*corev1.Pod)) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return joining.Ended(e.ObjectNew.(*corev1.Pod)) },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// Get returns the KVMConfig of a request.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, bool, error) {
	config, gate, err := r.Reader().Config(ctx, request.NamespacedName, key.FinalizerDeleter)
	if gate == observe.Gone {
		r.turns.Forget(request.String())
	}
	return config, gate == observe.Open, err
}
