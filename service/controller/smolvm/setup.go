package smolvm

import (
	"context"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
)

// AllKinds are the kinds that the controller reads or writes.
func AllKinds() []client.Object {
	return []client.Object{&v1alpha1.SmolVM{}, &v1alpha1.SmolVMNode{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.Secret{}}
}

const (
	// indexNode finds SmolVMs by their node, or by pending if they have none.
	indexNode = "smolvm.node"
	// indexMachine finds the SmolVM of a machine by node and name of the machine.
	indexMachine = "smolvm.machine"
	// pending is no name of a node.
	pending = "-"
)

// SetupIndexes adds the indexes that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, index := range map[string]client.IndexerFunc{
		indexNode: func(object client.Object) []string {
			if node := object.(*v1alpha1.SmolVM).Status.NodeName; node != "" {
				return []string{node}
			}
			return []string{pending}
		},
		indexMachine: func(object client.Object) []string {
			vm := object.(*v1alpha1.SmolVM)
			return []string{machineKey(vm.Status.NodeName, machinespec.Name(vm))}
		},
	} {
		if err := indexer.IndexField(ctx, &v1alpha1.SmolVM{}, name, index); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

func machineKey(node, machine string) string { return node + "/" + machine }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager makes the controller run when a SmolVM, a SmolVMNode, a Node or a machine changes. The cache is the
// controller's own.
func (r *Reconciler) SetupWithManager(m manager.Manager, c cache.Cache) error {
	options := reconciler.Options(m, Name, reconcileTimeout)
	options.Reconciler, options.LogConstructor = &r.Loop, chain.LoggerOf(m.GetLogger(), Name, "smolvm")
	made, err := controller.New(Name, m, options)
	if err != nil {
		return microerror.Mask(err)
	}
	w := &waker{reader: c, reconciler: r, clock: r.Clock}
	for _, runnable := range []manager.Runnable{w, manager.RunnableFunc(counter{reader: c, clock: r.Clock}.count)} {
		if err := m.Add(runnable); err != nil {
			return microerror.Mask(err)
		}
	}
	for _, s := range []source.Source{
		source.Kind[client.Object](c, &v1alpha1.SmolVM{}, w.vms()),
		source.Kind[client.Object](c, &v1alpha1.SmolVMNode{}, w.runtimes()),
		source.Kind[client.Object](c, &corev1.Node{}, w.hosts()),
		source.Func(func(_ context.Context, q queue) error {
			r.woken.Store(&q)
			return nil
		}),
	} {
		if err := made.Watch(s); err != nil {
			return microerror.Mask(err)
		}
	}
	r.wake = w.wake
	r.room = func(node string) {
		if q := r.woken.Load(); q != nil {
			w.wakeWaiting(*q, node)
		}
	}
	return nil
}

// Changed makes the controller run for the SmolVM of a machine, or for all of a node, if machine is empty. It does nothing
// before the controller has been started.
func (r *Reconciler) Changed(node, machine string) {
	if r.wake == nil || r.woken.Load() == nil {
		return
	}
	if machine == "" {
		r.wake(*r.woken.Load(), client.MatchingFields{indexNode: node})
		return
	}
	r.wake(*r.woken.Load(), client.MatchingFields{indexMachine: machineKey(node, machine)})
}

// Trim removes from objects in the cache what the controller does not read.
func Trim(object any) (any, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone: the object was deleted
	}
	apply.TrimManagedFields(accessor)
	if host, ok := object.(*corev1.Node); ok {
		trimHost(host)
	}
	return object, nil
}

// trimHost keeps of a Node what is asked before a machine is placed there.
func trimHost(host *corev1.Node) {
	host.ObjectMeta = metav1.ObjectMeta{Name: host.Name, UID: host.UID, ResourceVersion: host.ResourceVersion}
	host.Spec = corev1.NodeSpec{Unschedulable: host.Spec.Unschedulable, Taints: host.Spec.Taints}
	var conditions []corev1.NodeCondition
	for _, c := range host.Status.Conditions {
		if c.Type == corev1.NodeReady {
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	host.Status = corev1.NodeStatus{Conditions: conditions}
}
