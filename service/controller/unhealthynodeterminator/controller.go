// Package unhealthynodeterminator is the controller that replaces nodes whose Nodes stay unready, if this is enabled.
package unhealthynodeterminator

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// Name of the controller.
const Name = "unhealthynodeterminator"

// reconcileTimeout bounds one reconcile of one cluster.
const reconcileTimeout = time.Minute

// Reconciler reports the readiness of Nodes to node pods and replaces nodes that stay unready.
type Reconciler struct {
	observe.Follower

	Events events.EventRecorder

	reconciler.Loop[*v1alpha1.KVMConfig, *state.Machines]

	condition reconciler.OwnCondition
}

// Init builds the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	engine := apply.New(r.Client, r.Live, r.Clock)
	r.condition = reconciler.OwnCondition{Type: state.ConditionNodesRepaired, Owner: key.Operator + "-" + Name, Writer: engine, Clock: r.Clock}
	r.Loop = reconciler.Loop[*v1alpha1.KVMConfig, *state.Machines]{
		Name: Name, Controller: r, Chain: newChain(engine, r.Workloads, r.Clock, r.Events), Finalizer: key.FinalizerTerminator, Finalizers: engine, Outdated: r.Follower.Outdated,
	}
	return microerror.Mask(r.Chain.Validate())
}

// SetupWithManager makes the controller run when a KVMConfig, its node pods or a workload cluster change.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	b := builder.ControllerManagedBy(m).Named(Name).For(&v1alpha1.KVMConfig{}, builder.WithPredicates(observe.Spec(state.ConditionNodesRepaired))).
		WithOptions(reconciler.Options(m, Name, reconcileTimeout))
	if r.Workloads != nil {
		b = b.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.Reader().OfCluster)).WatchesRawSource(r.Workloads.Source())
	}
	return microerror.Mask(b.Complete(&r.Loop))
}

// Get returns the KVMConfig of a request.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, bool, error) {
	config, gate, err := r.Reader().Config(ctx, request.NamespacedName, key.FinalizerTerminator)
	return config, gate == observe.Open, err
}
