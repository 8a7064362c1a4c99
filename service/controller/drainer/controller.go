// Package drainer is the controller that empties node pods which are being deleted, whoever deletes them, before their
// machines are powered down.
package drainer

import (
	"context"
	"errors"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/drain"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/undecodable"
	"github.com/kvm-operator/kvm-operator/pkg/workload"
)

// Name of the controller.
const Name = "drainer"

const (
	// concurrency is how many pods are worked on at the same time.
	concurrency = 16
	// reconcileTimeout bounds one pass over one pod, so that a request that hangs holds up that pod only.
	reconcileTimeout = time.Minute
	// retryFirst and retryLast bound the back-off of a pod that cannot be worked on.
	retryFirst = 200 * time.Millisecond
	retryLast  = 30 * time.Second
	// releaseTimeout bounds how long a runner, askTimeout how long etcd, and insideTimeout how long the workload cluster is waited for each
	// time that it is asked: one whose API hangs must leave a pass the time to decide without it, and the pods of others a turn.
	releaseTimeout = 10 * time.Second
	askTimeout     = 15 * time.Second
	insideTimeout  = 10 * time.Second
	// emptyTimeout bounds the requests that empty a Node: longer than an API server waits for a webhook unless told otherwise. So many
	// evictions are under way at a time; they begin when the Node is cordoned, or after cordonFirst.
	emptyTimeout    = 15 * time.Second
	evictionsAtOnce = 16
	cordonFirst     = 3 * time.Second
)

// Reconciler holds node pods until they may go.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Pool has the connections to workload clusters; nil where the operator does not look into them.
	Pool *workload.Pool
	// Etcd knows of the members of clusters' etcd; nil where the operator does not look into etcd.
	Etcd Etcd
	// Release tells the runner of a node pod to power its machine down. It may be told twice.
	Release func(ctx context.Context, namespace, pod string) error
	// Timeout is how long pods are waited for where the KVMConfig does not say; zero: for ever.
	Timeout time.Duration
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// Outdated says what the definition of a kind lacks: no pod is let go then. Nil where it is known to be current.
	Outdated func(ctx context.Context) string

	engine *apply.Engine
}

// Etcd knows of the members of clusters' etcd.
type Etcd interface {
	// Vote is what is known of the vote of a member.
	Vote(cluster types.NamespacedName, member string) etcd.Vote
	// Ask has the members be asked, and waits until they were, or the context ends. It says whether they were.
	Ask(ctx context.Context, cluster types.NamespacedName) bool
}

// SetupWithManager makes the controller run when a node pod changes, or the end of its cluster or of its host begins.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	return microerror.Mask(builder.ControllerManagedBy(m).Named(Name).For(&corev1.Pod{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
			LogConstructor:          chain.LoggerOf(m.GetLogger(), Name, "pod"),
		}).
		Watches(&v1alpha1.KVMConfig{}, handler.EnqueueRequestsFromMapFunc(r.leaving)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.onHost)).
		Complete(r))
}

// leaving are the pods of a KVMConfig that concern this controller.
func (r *Reconciler) leaving(ctx context.Context, object client.Object) []reconcile.Request {
	var pods corev1.PodList
	id := object.(*v1alpha1.KVMConfig).Spec.Cluster.ID
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace(id)), client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if r.concerns(ctx, &pods.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}

// concerns says whether a pod is on its way out and held.
func (r *Reconciler) concerns(ctx context.Context, pod *corev1.Pod) bool {
	return controllerutil.ContainsFinalizer(pod, key.FinalizerDrainer) && (pod.DeletionTimestamp != nil || r.hostGoes(ctx, pod))
}

// Reconcile takes the next step with one pod.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, request.NamespacedName, pod); err != nil || !r.concerns(ctx, pod) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.Outdated != nil && r.Outdated(ctx) != "" {
		return reconcile.Result{RequeueAfter: definitionsLook}, nil
	}
	config, err := r.configOf(ctx, pod)
	if errors.Is(err, errNobodys) {
		return reconcile.Result{RequeueAfter: ownerMissing}, nil
	}
	if errors.Is(err, errNotOurs) || config != nil && (undecodable.Why(config) != "" || key.Paused(config.Annotations)) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	machine, err := r.look(ctx, pod, config, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := drain.Decide(machine)
	if decision.Announced(machine) {
		if machine, decision, err = r.announce(ctx, pod, config); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.act(ctx, pod, config, machine, decision); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: decision.After}, nil
}

// definitionsLook is how soon it is looked again, without a request, whether the definition of a kind that was outdated is current.
const definitionsLook = 5 * time.Second

// errNobodys: the namespace does not say whose it is. The cluster controller writes it down again where somebody has removed that.
var errNobodys = errors.New("the pod's namespace names no owner")

// ownerMissing is when it is looked at again.
const ownerMissing = 30 * time.Second

// errNotOurs: the pod belongs to a cluster that this operator is not responsible for.
var errNotOurs = errors.New("the pod belongs to a cluster of another operator")

// configOf is the KVMConfig that owns the pod's namespace; nil when it is known to be gone. One that the cache does not have
// may be another operator's, so the API server is asked.
func (r *Reconciler) configOf(ctx context.Context, pod *corev1.Pod) (*v1alpha1.KVMConfig, error) {
	namespace := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)
	if apierrors.IsNotFound(err) { // it lacks the operator's label, as those of giantswarm/kvm-operator do
		return nil, errNobodys
	}
	if err != nil {
		return nil, microerror.Mask(err)
	}
	owner, named := key.ParseOwner(namespace.Annotations)
	switch {
	case !named:
		return nil, errNobodys
	case owner.Kind != key.KindKVMConfig:
		return nil, errNotOurs
	}
	name := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	config := &v1alpha1.KVMConfig{}
	if err := r.Client.Get(ctx, name, config); client.IgnoreNotFound(err) != nil {
		return nil, microerror.Mask(err)
	} else if err == nil {
		return ownerOf(namespace, owner, config)
	}
	// Whether it is there is all that counts; it may be one that cannot be decoded.
	there := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KVMConfig"}}
	if err := r.Live.Get(ctx, name, there); err != nil {
		return nil, microerror.Mask(client.IgnoreNotFound(err))
	}
	return nil, errNotOurs
}

// ownerOf is the KVMConfig that a namespace names, if it is that one's: the KVMConfig has a cluster of that id, and is the one whose UID the
// namespace has. A namespace of earlier operators has no UID. One that was restored from a backup has a former one, in whose place the cluster
// controller writes this one if the namespace is proven to be the cluster's.
func ownerOf(namespace *corev1.Namespace, owner key.Owner, config *v1alpha1.KVMConfig) (*v1alpha1.KVMConfig, error) {
	switch {
	case key.Namespace(config.Spec.Cluster.ID) != namespace.Name:
		return nil, errNotOurs
	case owner.UID != "" && owner.UID != config.UID && config.DeletionTimestamp == nil:
		return nil, errNobodys
	}
	return config, nil
}
