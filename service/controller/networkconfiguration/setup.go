package networkconfiguration

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// pace is the time between a change of a Machine and the status of its networks. A hundred Machines that start on one
// network cause a few writes instead of a hundred.
const pace = 200 * time.Millisecond

// SetupWithManager makes the controller run when a NetworkConfiguration, its NetworkAttachmentDefinition or a Machine on it
// changes. machines is the cache of Machines.
func (r *Reconciler) SetupWithManager(m manager.Manager, machines cache.Cache) error {
	options := reconciler.Options(m, Name, reconcileTimeout)
	options.Reconciler, options.LogConstructor = &r.Loop, jsonlog.Constructor(m.GetLogger(), "NetworkConfiguration")
	made, err := controller.New(Name, m, options)
	if err != nil {
		return microerror.Mask(err)
	}
	for _, s := range []source.Source{
		r.Networks.Source(&v1alpha1.NetworkConfiguration{}, &handler.EnqueueRequestForObject{}, predicate.GenerationChangedPredicate{}),
		r.Multus.Source(&multusv1.NetworkAttachmentDefinition{}, &handler.EnqueueRequestForObject{}, reconciler.Changed{}),
		source.Kind[client.Object](machines, &v1alpha1.Machine{}, followers()),
		r.wake.Source(),
	} {
		if err := made.Watch(s); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// followers makes the controller run for the networks of a Machine when that changes in what attachments show.
func followers() handler.EventHandler {
	add := func(q reconciler.Queue, objects ...client.Object) {
		for _, object := range objects {
			for _, network := range object.(*v1alpha1.Machine).Spec.Networks {
				q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: network.NetworkName}}, pace)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q reconciler.Queue) { add(q, e.Object) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q reconciler.Queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q reconciler.Queue) {
			if shows(e.ObjectOld.(*v1alpha1.Machine), e.ObjectNew.(*v1alpha1.Machine)) {
				add(q, e.ObjectOld, e.ObjectNew)
			}
		},
	}
}

// shows returns whether attachments show a difference between two states of a Machine.
func shows(before, after *v1alpha1.Machine) bool {
	return before.Spec.Provider != after.Spec.Provider || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Status.NodeName != after.Status.NodeName || (before.Status.VMName == "") != (after.Status.VMName == "") ||
		!equality.Semantic.DeepEqual(before.Spec.Networks, after.Spec.Networks) ||
		!equality.Semantic.DeepEqual(before.Status.NetworkInterfaces, after.Status.NetworkInterfaces)
}

// NetworksOf is the function of IndexNetwork.
func NetworksOf(object client.Object) []string {
	var names []string
	for _, network := range object.(*v1alpha1.Machine).Spec.Networks {
		names = append(names, network.NetworkName)
	}
	return names
}
