// Package virtualmachine is the controller that runs the virtual machine of each VirtualMachine.
package virtualmachine

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine/links"
)

// Name of the controller.
const Name = "virtualmachine"

// reconcileTimeout bounds one reconcile of one virtual machine.
const reconcileTimeout = time.Minute

// Reconciler reconciles the management cluster with VirtualMachines. They have no finalizer: what belongs to one is
// garbage-collected with it, also while no operator runs.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Links are the links with runners; nil links with none.
	Links *links.Links
	// Settings are the operator's.
	Settings virtualmachine.Settings
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	// Outdated returns what the definition of the kind lacks: nothing is reconciled then. Nil if it is known to be
	// current.
	Outdated func(ctx context.Context) string

	reconciler.Loop[*v1.VirtualMachine, *virtualmachine.State]

	engine *apply.Engine
	woken  atomic.Pointer[queue]
}

// Init creates the engine and the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.engine.Adopts = adopts
	r.Loop = reconciler.Loop[*v1.VirtualMachine, *virtualmachine.State]{Name: Name, Controller: r, Chain: newChain(r.engine, actor{newGrower(r.engine, r.Clock), r.engine, r.Live, r.Events, r.Links}, rand.Text), Outdated: r.Outdated, Follow: r.follow}
	return microerror.Mask(r.Chain.Validate())
}

// adopts takes over an object that has no owner and that VM-Operator created for the same virtual machine: it has its
// labels, and its owner reference names the virtual machine.
func adopts(live, wanted metav1.Object, _ bool) (bool, string) {
	const handOver = "give it the labels and the owner reference of the VirtualMachine, if it is the machine's"
	owner := metav1.GetControllerOfNoCopy(wanted)
	labels := live.GetLabels()
	if owner == nil || labels[virtualmachine.LabelName] != virtualmachine.Runner || labels[virtualmachine.LabelInstance] != owner.Name {
		return false, handOver
	}
	for _, reference := range live.GetOwnerReferences() {
		if reference.UID == owner.UID {
			return true, handOver
		}
	}
	return false, handOver
}

// Get returns the VirtualMachine of a request. One that is being deleted is left to the garbage collector.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1.VirtualMachine, bool, error) {
	vm := &v1.VirtualMachine{}
	err := r.Client.Get(ctx, request.NamespacedName, vm)
	if err != nil {
		if apierrors.IsNotFound(err) && r.Links != nil {
			r.Links.Forget(request.NamespacedName)
		}
		return nil, false, microerror.Mask(client.IgnoreNotFound(err))
	}
	return vm, vm.DeletionTimestamp == nil && undecodable.Why(vm) == "", nil
}

// Again returns when the chain wants to run again.
func (*Reconciler) Again(_ *virtualmachine.State, after time.Duration) time.Duration { return after }

// actor acts on machines whose guest has shut down, and reports it.
type actor struct {
	*grower
	engine *apply.Engine
	live   client.Reader
	events events.EventRecorder
	links  *links.Links
}

// Order tells the runner of a machine what the machine is to be.
func (a actor) Order(s *virtualmachine.State) {
	if a.links != nil {
		a.links.Order(client.ObjectKeyFromObject(s.VM), s.Order())
	}
}

// Refresh has the kubelet replace the files of a pod's Secrets at once.
func (a actor) Refresh(ctx context.Context, pod *corev1.Pod, version string) error {
	return a.engine.AnnotatePod(ctx, pod, virtualmachine.AnnotationDisplay, version)
}

// ScaleToZero sets the replicas of a StatefulSet to zero.
func (a actor) ScaleToZero(ctx context.Context, set *appsv1.StatefulSet) error {
	return a.engine.SetField(ctx, set, "/spec/replicas", set.Spec.Replicas, 0)
}

// there returns whether the pod still exists, and is not ending: the cache may lag behind.
func (a actor) there(ctx context.Context, pod *corev1.Pod) (bool, error) {
	now, err := read(ctx, a.live, pod.Namespace, pod.Name, &corev1.Pod{})
	return now != nil && now.UID == pod.UID && now.DeletionTimestamp == nil, microerror.Mask(err)
}

// Stop declares a machine stopped.
func (a actor) Stop(ctx context.Context, vm *v1.VirtualMachine, pod *corev1.Pod) error {
	if there, err := a.there(ctx, pod); err != nil || !there {
		return err
	}
	if err := a.engine.SetField(ctx, vm, "/spec/vm/state", v1.StateRunning, v1.StateStopped); err != nil {
		return err
	}
	a.tell(vm, "GuestShutDown", "Stop", "The guest shut itself down, and the machine stays stopped")
	return nil
}

// DeletePod deletes the pod of a machine.
func (a actor) DeletePod(ctx context.Context, vm *v1.VirtualMachine, pod *corev1.Pod) error {
	if err := a.engine.DeletePod(ctx, pod); err != nil {
		return err
	}
	a.tell(vm, "GuestShutDown", "Restart", "The guest shut itself down, and the machine is started again in a new pod")
	return nil
}

func (a actor) tell(vm *v1.VirtualMachine, reason, action, note string) {
	if a.events != nil {
		a.events.Eventf(vm, nil, corev1.EventTypeNormal, reason, action, "%s", note)
	}
}
