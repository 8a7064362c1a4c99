// Package drainer is the controller that drains node pods which are being deleted, regardless of who deletes them,
// before it shuts their machines down.
package drainer

import (
	"context"
	"errors"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
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
	// releaseTimeout bounds a request to a runner, askTimeout one to etcd, and insideTimeout one to the workload
	// cluster: if the API of a cluster hangs, a pass must have time left to decide without it, and the pods of other
	// clusters must not wait.
	releaseTimeout = 10 * time.Second
	askTimeout     = 15 * time.Second
	insideTimeout  = 10 * time.Second
	// emptyTimeout bounds the requests that empty a Node: longer than an API server waits for a webhook by default.
	// evictionsAtOnce is how many evictions are in progress at a time; they start when the Node is cordoned, or after
	// cordonFirst.
	emptyTimeout    = 15 * time.Second
	evictionsAtOnce = 16
	cordonFirst     = 3 * time.Second
)

// Reconciler holds node pods until they may end.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Pool has the connections to workload clusters; nil if the operator does not connect to them.
	Pool *workload.Pool
	// Etcd knows the members of the clusters' etcd; nil if the operator does not connect to etcd.
	Etcd Etcd
	// Release tells the runner of a node pod to shut its machine down. It may be called twice for a pod.
	Release func(ctx context.Context, namespace, pod string) error
	// Timeout is how long pods are waited for if the KVMConfig does not set a timeout; 0 means without a limit.
	Timeout time.Duration
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// Outdated returns what the definition of a kind lacks: no pod is released then. Nil if the definitions are known
	// to be current.
	Outdated func(ctx context.Context) string

	reconciler.Loop[Leaver, *drain.State]

	engine *apply.Engine
}

// Etcd knows the members of the clusters' etcd.
type Etcd interface {
	// Vote returns what is known of the vote of a member, and how many members have a vote; zero if that is not known.
	Vote(cluster types.NamespacedName, member string) (vote etcd.Vote, voters int)
	// Ask queries the members, and waits until that is done or the context ends. It returns whether it was done.
	Ask(ctx context.Context, cluster types.NamespacedName) bool
}

// Init builds the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.Loop = reconciler.Loop[Leaver, *drain.State]{Name: Name, Controller: r, Chain: newPodChain(actor{r}), Outdated: r.Outdated}
	return microerror.Mask(r.Chain.Validate())
}

// SetupWithManager makes the controller run when a node pod or the slices of its cluster change, and when its cluster
// is deleted or its host shuts down.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	return microerror.Mask(builder.ControllerManagedBy(m).Named(Name).For(&corev1.Pod{}, builder.WithPredicates(news{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
			LogConstructor:          chain.LoggerOf(m.GetLogger(), Name, "pod"),
		}).
		Watches(&v1alpha1.KVMConfig{}, handler.EnqueueRequestsFromMapFunc(r.leaving)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.onHost)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.inSlice)).
		Complete(&r.Loop))
}

// leaving returns the pods of a KVMConfig that concern this controller.
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

// inSlice returns the pods of a slice. It is called with the old and the new slice.
func (*Reconciler) inSlice(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	slice := object.(*discoveryv1.EndpointSlice)
	for _, e := range slice.Endpoints {
		if e.TargetRef != nil {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: slice.Namespace, Name: e.TargetRef.Name}})
		}
	}
	return requests
}

// concerns returns whether a pod is held and is about to end, or its condition says so wrongly.
func (r *Reconciler) concerns(ctx context.Context, pod *corev1.Pod) bool {
	return controllerutil.ContainsFinalizer(pod, key.FinalizerDrainer) &&
		(pod.DeletionTimestamp != nil || r.hostGoes(ctx, pod) || drain.Confirmed(pod) && r.hostStays(ctx, pod))
}

// Get returns the pod of a request, if it is about to end and this operator is responsible for it.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (l Leaver, found bool, err error) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, request.NamespacedName, pod); err != nil || !r.concerns(ctx, pod) {
		return Leaver{}, false, client.IgnoreNotFound(err)
	}
	config, err := r.configOf(ctx, pod)
	switch {
	case errors.Is(err, errUnowned):
		return Leaver{Pod: pod, unowned: true}, true, nil
	case errors.Is(err, errNotOurs):
		return Leaver{}, false, nil
	case err != nil:
		return Leaver{}, false, err
	}
	ignored := config != nil && (undecodable.Why(config) != "" || key.Paused(config.Annotations))
	return Leaver{Pod: pod, config: config}, !ignored, nil
}

// Again returns when the chain wants to run again.
func (*Reconciler) Again(_ *drain.State, after time.Duration) time.Duration { return after }

// errUnowned: the namespace does not name its owner. The cluster controller writes the owner again if it was removed.
var errUnowned = errors.New("the pod's namespace has no owner annotation")

// errNotOurs: the pod belongs to a cluster that this operator is not responsible for.
var errNotOurs = errors.New("the pod belongs to a cluster of another operator")

// configOf returns the KVMConfig that owns the pod's namespace; nil if it is known to be gone. A KVMConfig that is not
// in the cache may be another operator's, so the API server is read.
func (r *Reconciler) configOf(ctx context.Context, pod *corev1.Pod) (*v1alpha1.KVMConfig, error) {
	namespace := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)
	if apierrors.IsNotFound(err) { // it does not have the operator's label, like those of giantswarm/kvm-operator
		return nil, errUnowned
	}
	if err != nil {
		return nil, microerror.Mask(err)
	}
	owner, named := ownership.Parse(namespace.Annotations)
	switch {
	case !named:
		return nil, errUnowned
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
	// Only its existence counts; it may be one that cannot be decoded.
	there := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KVMConfig"}}
	if err := r.Live.Get(ctx, name, there); err != nil {
		return nil, microerror.Mask(client.IgnoreNotFound(err))
	}
	return nil, errNotOurs
}

// ownerOf returns the KVMConfig that a namespace names if the namespace belongs to it: its cluster has that ID, and its
// UID is the one that the namespace names. A namespace of earlier operators has no UID. A namespace that was restored
// from a backup has a former UID, which the cluster controller replaces if the namespace is proven to belong to the
// cluster.
func ownerOf(namespace *corev1.Namespace, owner ownership.Owner, config *v1alpha1.KVMConfig) (*v1alpha1.KVMConfig, error) {
	switch {
	case key.Namespace(config.Spec.Cluster.ID) != namespace.Name:
		return nil, errNotOurs
	case owner.UID != "" && owner.UID != config.UID && config.DeletionTimestamp == nil:
		return nil, errUnowned
	}
	return config, nil
}
