// Package smolvm is the controller that has the runtimes of nodes run the machine of each SmolVM.
package smolvm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// Name of the controller.
const Name = "smolvm"

// EventSource is the name in the events of SmolVMs, that of smolvm-operator.
const EventSource = "smolvm-controller"

// reconcileTimeout bounds one reconcile of one SmolVM, which never waits for a node.
const reconcileTimeout = time.Minute

// Reconciler reconciles the runtimes of nodes with SmolVMs.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Nodes asks the runtimes.
	Nodes  *nodes.Pool
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// PullSecrets is whether the Secrets of spec.imagePullSecrets are read.
	PullSecrets bool
	// Outdated returns what the definition of the kind lacks: nothing is reconciled then. Nil if it is known to be
	// current.
	Outdated func(ctx context.Context) string

	reconciler.Loop[*v1alpha1.SmolVM, *state.State]

	engine *apply.Engine
	placer *placer
	woken  atomic.Pointer[queue]
	// wake is set before the controller starts.
	wake func(q queue, which ...client.ListOption)
	// room wakes those that wait for room on a node. It is set as wake is.
	room func(node string)

	mu sync.Mutex
	// cluster is the UID of the namespace kube-system, once it was read.
	cluster types.UID
}

// Init creates the engine and the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.placer = newPlacer(r.Client, r.Nodes, r.Clock)
	r.Loop = reconciler.Loop[*v1alpha1.SmolVM, *state.State]{
		Name: Name, Controller: r, Chain: newChain(actor{r.Nodes, r.Events, pullSecrets{r.Live, r.PullSecrets}}), Outdated: r.Outdated,
		Finalizer: v1alpha1.Finalizer, Adds: []string{v1alpha1.Finalizer}, Finalizers: r.engine, Follow: r.follow,
	}
	return microerror.Mask(r.Chain.Validate())
}

// Get returns the SmolVM of a request.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.SmolVM, bool, error) {
	vm := &v1alpha1.SmolVM{}
	if err := r.Client.Get(ctx, request.NamespacedName, vm); err != nil {
		if apierrors.IsNotFound(err) {
			r.placer.forget(request.NamespacedName)
		}
		return nil, false, microerror.Mask(client.IgnoreNotFound(err))
	}
	return vm, undecodable.Why(vm) == "", nil
}

// Again returns when the chain wants to run again.
func (*Reconciler) Again(_ *state.State, after time.Duration) time.Duration { return after }

// clusterUID returns the UID of the management cluster. It is read once.
func (r *Reconciler) clusterUID(ctx context.Context) (types.UID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cluster != "" {
		return r.cluster, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", microerror.Mask(err)
	}
	r.cluster = namespace.UID
	return r.cluster, nil
}
