package virtualmachine

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// watched are the kinds of object that belong to virtual machines. All of them have the labels of VM-Operator.
func watched() []client.Object {
	return append(apply.Kinds(Resources()), &corev1.Pod{}, &corev1.PersistentVolumeClaim{})
}

// AllKinds are the kinds that the controller reads or writes.
func AllKinds() []client.Object { return append(watched(), &v1.VirtualMachine{}) }

// Objects returns which objects the cache of the controller has.
func Objects() map[client.Object]cache.ByObject {
	selector := labels.SelectorFromSet(labels.Set{virtualmachine.LabelName: virtualmachine.Runner})
	objects := map[client.Object]cache.ByObject{}
	for _, kind := range watched() {
		objects[kind] = cache.ByObject{Label: selector}
	}
	return objects
}

// SetupIndexes adds the indexes that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, kind := range apply.Kinds(Resources()) {
		if err := indexer.IndexField(ctx, kind, apply.IndexOwner, apply.OwnerOf); err != nil {
			return microerror.Mask(err)
		}
	}
	return microerror.Mask(indexer.IndexField(ctx, &corev1.Secret{}, indexDisplay, machineOfDisplay))
}

// indexDisplay finds Secrets with the password of a display by the name of the machine.
const indexDisplay = "display"

func machineOfDisplay(object client.Object) []string {
	labels := object.GetLabels()
	if labels[virtualmachine.LabelName] != virtualmachine.Runner || labels[virtualmachine.LabelComponent] != virtualmachine.DisplaySecretComponent {
		return nil
	}
	return []string{labels[virtualmachine.LabelInstance]}
}

// NoTimeout is longer than an operator lives.
const NoTimeout = 100 * 365 * 24 * time.Hour

// SetupWithManager makes the controller run when a VirtualMachine, or an object that belongs to it, changes. The cache
// is the controller's own.
func (r *Reconciler) SetupWithManager(m manager.Manager, c cache.Cache) error {
	options := reconciler.Options(m, Name, reconcileTimeout)
	options.Reconciler, options.LogConstructor = &r.Loop, chain.LoggerOf(m.GetLogger(), Name, "virtualmachine")
	// A cache that does not fill is no reason to end the operator, which has clusters too.
	options.CacheSyncTimeout = NoTimeout
	made, err := controller.New(Name, m, options)
	if err != nil {
		return microerror.Mask(err)
	}
	if err := m.Add(manager.RunnableFunc(counter{c}.count)); err != nil {
		return microerror.Mask(err)
	}
	news := reconciler.News{Conditions: func(o client.Object) []metav1.Condition { return o.(*v1.VirtualMachine).Status.Conditions }}
	sources := []source.Source{source.Kind[client.Object](c, &v1.VirtualMachine{}, &handler.EnqueueRequestForObject{}, news)}
	for _, kind := range watched() {
		sources = append(sources, source.Kind[client.Object](c, kind, handler.EnqueueRequestsFromMapFunc(owner)))
	}
	sources = append(sources, source.Func(func(_ context.Context, q queue) error {
		r.woken.Store(&q)
		return nil
	}))
	for _, s := range sources {
		if err := made.Watch(s); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Wake makes the controller run for a virtual machine, once the controller has been started.
func (r *Reconciler) Wake(name types.NamespacedName) {
	if q := r.woken.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: name})
	}
}

// owner returns the virtual machine of an object: the one that its annotation names, or, of pods and claims, which the
// StatefulSet creates, the one that their label names.
func owner(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[virtualmachine.LabelInstance]
	if named, ok := ownership.Parse(object.GetAnnotations()); ok && named.Kind == virtualmachine.OwnerKind && named.Namespace == object.GetNamespace() {
		name = named.Name
	}
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// Trim removes from objects in the cache what the controller does not read.
func Trim(object any) (any, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone: the object was deleted
	}
	apply.TrimManagedFields(accessor)
	if secret, ok := object.(*corev1.Secret); ok && len(machineOfDisplay(secret)) > 0 {
		secret.Data = nil // the operator does not need to know passwords
	}
	return object, nil
}
