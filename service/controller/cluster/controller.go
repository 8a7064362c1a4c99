// Package cluster is the controller that keeps the objects of a workload cluster on the management cluster.
package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/undecodable"
	"github.com/kvm-operator/kvm-operator/resources/vault"
)

// Name of the controller.
const Name = "cluster"

// definitionsLook is how soon it is looked again, without a request, whether the definition of a kind that was outdated is current.
const definitionsLook = 5 * time.Second

// Reconciler brings the management cluster to what a KVMConfig declares.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Settings are the operator's.
	Settings snapshot.Settings
	// Issuer and NewKey make what is random.
	Issuer pki.Issuer
	// Vault has the keys of authorities; nil where there is none.
	Vault  vault.Revoker
	NewKey func(name string) (string, error)
	// Readiness is the seam between rolling and the world.
	Readiness snapshot.Readiness
	// Workloads are the connections to the workload clusters; nil leaves those alone and makes machines only.
	Workloads *Workloads
	Clock     clock.PassiveClock
	// ClockDifference is how far the API server's clock, which Clock follows, is off this machine's; nil where there is none.
	ClockDifference func() time.Duration
	Events          events.EventRecorder
	// Console reads the end of what the machine of a node pod has printed; nil where nobody can.
	Console func(ctx context.Context, namespace, pod string) (string, error)
	// Outdated says what the definition of a kind lacks: nothing is reconciled then. Nil where it is known to be current.
	Outdated func(ctx context.Context) string
	// silent are the pods whose consoles did not come.
	silent silence

	engine   *apply.Engine
	chain    chain.Chain[*snapshot.Snapshot]
	renderer *cloudconfig.Renderer
}

// Init builds the chain over an engine of its own. It fails when the chain contradicts itself.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.chain = NewChain(r.engine, r.Workloads, r.Vault, r.Clock, r.Events)
	r.renderer = cloudconfig.NewRenderer()
	return microerror.Mask(r.chain.Validate())
}

// Reconcile gathers a snapshot, runs the chain on it and stores the status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.Outdated != nil && r.Outdated(ctx) != "" {
		return reconcile.Result{RequeueAfter: definitionsLook}, nil
	}
	config, err := r.workedOn(ctx, request)
	if err != nil || config == nil {
		return reconcile.Result{}, err
	}
	deleting := config.DeletionTimestamp != nil
	if !deleting {
		if err := r.addFinalizer(ctx, config); err != nil {
			return reconcile.Result{}, err
		}
	}
	s, err := r.gather(ctx, config)
	if err != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	results := r.chain.Run(ctx, s, deleting)
	chain.Observe(Name, request.String(), deleting, results)
	if deleting && allDone(results) {
		return reconcile.Result{}, r.removeFinalizers(ctx, config)
	}
	if err := r.storeStatus(ctx, config, s, results); err != nil {
		return reconcile.Result{}, err
	}
	after, err := chain.Next(results)
	if err != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	return reconcile.Result{RequeueAfter: r.sooner(after, s)}, nil
}

// workedOn is the KVMConfig of a request; nil for one that is gone or left as it is.
func (r *Reconciler) workedOn(ctx context.Context, request reconcile.Request) (*v1alpha1.KVMConfig, error) {
	config := &v1alpha1.KVMConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, config); err != nil {
		if apierrors.IsNotFound(err) {
			chain.ForgetObject(request.String())
			r.Workloads.forget(request.NamespacedName)
		}
		return nil, client.IgnoreNotFound(err)
	}
	released := config.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(config, key.FinalizerCluster)
	// The spec of what cannot be decoded looks empty: its cluster is left as it is.
	alone := undecodable.Why(config) != "" || key.Paused(config.Annotations) || released
	if !alone {
		var err error
		if alone, err = r.standAside(ctx, config); err != nil {
			return nil, err
		}
	}
	if alone {
		r.Workloads.spareMembers(request.NamespacedName)
		return nil, nil
	}
	return config, nil
}

// sooner is the shorter of a wish to come back, of the time until bootstrap tokens change, and of when nodes that are not
// Ready, those that wait for these, masters without a majority, snapshots of etcd, and data that masters have left are looked at again.
func (r *Reconciler) sooner(after time.Duration, s *snapshot.Snapshot) time.Duration {
	now := r.Clock.Now()
	wishes := []time.Duration{
		after, hurry(nodeStatuses(s, now)), until(endsBy(s.SnapshotJob), now), until(beginsBy(s.SnapshotJob), now), until(s.NextLate(), now),
		until(s.LostAt(), now), until(s.NextRemoval(), now),
	}
	if s.Tokens.Known() && r.Workloads != nil {
		wishes = append(wishes, max(s.Tokens.Next().Sub(now), time.Second))
	}
	wishes = slices.DeleteFunc(wishes, func(d time.Duration) bool { return d <= 0 })
	if len(wishes) == 0 {
		return 0
	}
	return slices.Min(wishes)
}

func allDone(results []chain.Result) bool {
	for _, r := range results {
		if !r.Done() {
			return false
		}
	}
	return true
}

func (r *Reconciler) addFinalizer(ctx context.Context, config *v1alpha1.KVMConfig) error {
	before := config.DeepCopy()
	if !controllerutil.AddFinalizer(config, key.FinalizerCluster) {
		return nil
	}
	return microerror.Mask(r.Client.Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// removeFinalizers lets the object go. The finalizers of the original's other controllers go too: their work is done by
// the chain, and nobody else would ever remove them.
func (r *Reconciler) removeFinalizers(ctx context.Context, config *v1alpha1.KVMConfig) error {
	before := config.DeepCopy()
	for _, name := range []string{key.FinalizerCluster, key.FinalizerLegacyDeleter, key.FinalizerLegacyTerminator} {
		controllerutil.RemoveFinalizer(config, name)
	}
	err := r.Client.Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return microerror.Mask(client.IgnoreNotFound(err))
}

// storeStatus writes the status when it differs. The version of the object that was read is a precondition, so that what
// was decided on outdated knowledge, an index above all, is never stored. A pass that took too long is told of, too.
func (r *Reconciler) storeStatus(ctx context.Context, config *v1alpha1.KVMConfig, s *snapshot.Snapshot, results []chain.Result) error {
	if reconnects(s, results) {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
	}
	updated := config.DeepCopy()
	updated.Status = status(s, results, r.Clock.Now())
	r.showConsoles(ctx, s.ID(), updated.Status.Nodes)
	if equality.Semantic.DeepEqual(config.Status, updated.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return microerror.Mask(client.IgnoreNotFound(err))
	}
	r.tell(ctx, config, updated)
	return nil
}
