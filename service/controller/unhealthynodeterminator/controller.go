// Package unhealthynodeterminator is the controller that replaces nodes whose Nodes stay unready, if this is enabled.
package unhealthynodeterminator

import (
	"context"
	"slices"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/observe"
	"github.com/kvm-operator/kvm-operator/pkg/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/workload"
)

// Name of the controller.
const Name = "unhealthynodeterminator"

const (
	// concurrency is how many clusters are reconciled at the same time.
	concurrency = 8
	// reconcileTimeout bounds one reconcile of one cluster.
	reconcileTimeout = time.Minute
	// retryFirst and retryLast bound the back-off of a failing cluster.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
)

// Workloads are the connections to the workload clusters, which the cluster controller creates.
type Workloads interface {
	// Seen returns what is known of a workload cluster.
	Seen(name types.NamespacedName) cluster.Workload
	// Source wakes a controller when a workload cluster changes.
	Source() source.Source
}

// Reconciler reports the readiness of Nodes to node pods and replaces nodes that stay unready.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Settings are the operator's.
	Settings cluster.Settings
	// Workloads is nil if the operator does not connect to workload clusters: then the controller only removes its
	// finalizer.
	Workloads Workloads
	Clock     clock.PassiveClock
	Events    events.EventRecorder
	// Outdated returns what the definition of a kind lacks: nothing is reconciled then. Nil if the definitions are
	// known to be current.
	Outdated func(ctx context.Context) string

	reconciler.Loop[*v1alpha1.KVMConfig, *cluster.Machines]

	condition reconciler.OwnCondition
}

// Init builds the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	engine := apply.New(r.Client, r.Live, r.Clock)
	r.condition = reconciler.OwnCondition{Type: cluster.ConditionNodesRepaired, Owner: key.Operator + "-" + Name, Writer: engine, Clock: r.Clock}
	r.Loop = reconciler.Loop[*v1alpha1.KVMConfig, *cluster.Machines]{
		Name: Name, Controller: r, Chain: newChain(engine, r.Workloads, r.Clock, r.Events), Finalizer: key.FinalizerTerminator, Finalizers: engine, Outdated: r.Outdated,
	}
	return microerror.Mask(r.Chain.Validate())
}

// SetupWithManager makes the controller run when a KVMConfig, its node pods or a workload cluster change.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	b := builder.ControllerManagedBy(m).Named(Name).For(&v1alpha1.KVMConfig{}, builder.WithPredicates(observe.Spec(cluster.ConditionNodesRepaired))).WithOptions(controller.Options{
		MaxConcurrentReconciles: concurrency,
		ReconciliationTimeout:   reconcileTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		LogConstructor:          chain.LoggerOf(m.GetLogger(), Name, "kvmconfig"),
	})
	if r.Workloads != nil {
		b = b.Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.reader().OfCluster)).WatchesRawSource(r.Workloads.Source())
	}
	return microerror.Mask(b.Complete(&r.Loop))
}

// Get returns the KVMConfig of a request.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, bool, error) {
	config, gate, err := r.reader().Config(ctx, request.NamespacedName, key.FinalizerTerminator)
	return config, gate == observe.Open, err
}

// Gather reads the machines of a cluster and the Nodes of its workload cluster.
func (r *Reconciler) Gather(ctx context.Context, config *v1alpha1.KVMConfig) (*cluster.Machines, error) {
	var seen cluster.Workload
	if r.Workloads != nil && config.DeletionTimestamp == nil {
		seen = r.Workloads.Seen(client.ObjectKeyFromObject(config))
	}
	return r.reader().Machines(ctx, config, r.Settings, seen)
}

// Store writes the controller's condition. While the workload cluster is not reached, the only news is that nothing is
// replaced. An operator that has just started waits for the first attempt to reach it, which wakes the controller.
func (r *Reconciler) Store(
	ctx context.Context, config *v1alpha1.KVMConfig, m *cluster.Machines, results []chain.Result,
) error {
	waits := slices.ContainsFunc(results, func(r chain.Result) bool { return !r.Done() })
	connecting := m.Workload.Reason == string(workload.Connecting)
	if r.Workloads != nil && !m.Workload.Connected && (connecting || !waits) {
		return nil
	}
	return r.condition.Store(ctx, config, config.Status.Conditions, results)
}

// Again returns when the chain wants to run again.
func (r *Reconciler) Again(_ *cluster.Machines, after time.Duration) time.Duration { return after }

func (r *Reconciler) reader() observe.Reader { return observe.Reader{Cached: r.Client, Live: r.Live} }
