package machine

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/controller/networkconfiguration"
)

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// labeled returns the Machine of an object.
func labeled(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range NamesOf(object) {
		requests = append(requests, request(object.GetNamespace(), name))
	}
	return slices.Compact(requests)
}

// those adds the Machines that an index finds to a queue.
func (r *Reconciler) those(ctx context.Context, q reconciler.Queue, which ...client.ListOption) {
	if err := reconciler.EnqueueAll(ctx, q, r.Client, &v1alpha1.MachineList{}, which...); err != nil {
		log.FromContext(ctx).Error(err, "Machines are not reconciled before the next interval")
	}
}

// found returns the Machines that an index finds.
func (r *Reconciler) found(ctx context.Context, which ...client.ListOption) []reconcile.Request {
	var list v1alpha1.MachineList
	if err := r.Client.List(ctx, &list, append(which, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...); err != nil {
		log.FromContext(ctx).Error(err, "Machines are not reconciled before the next interval")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, request(list.Items[i].Namespace, list.Items[i].Name))
	}
	return requests
}

// referring returns a function that returns the Machines that refer to a Secret or ConfigMap.
func (r *Reconciler) referring(kind string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		return r.found(ctx, client.InNamespace(object.GetNamespace()), client.MatchingFields{indexReference: kind + "/" + object.GetName()})
	}
}

// ofClass returns the Machines of a MachineClass.
func (r *Reconciler) ofClass(ctx context.Context, object client.Object) []reconcile.Request {
	return r.found(ctx, client.MatchingFields{indexClass: object.GetName()})
}

// unstored makes the controller run for all Machines whose claims are not all bound, which a StorageClass may help.
func (r *Reconciler) unstored() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list v1alpha1.MachineList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			log.FromContext(ctx).Error(err, "Machines are not reconciled before the next interval")
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if m := &list.Items[i]; !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady) {
				requests = append(requests, request(m.Namespace, m.Name))
			}
		}
		return requests
	})
}

// sharers makes the controller run for Machines that wait for a MAC address, when another one with it is gone or changed.
func (r *Reconciler) sharers() handler.EventHandler {
	wake := func(ctx context.Context, q reconciler.Queue, object client.Object) {
		for _, mac := range vitistack.MACsOf(object.(*v1alpha1.Machine), r.Settings.MACSet) {
			r.those(ctx, q, client.InNamespace(object.GetNamespace()), client.MatchingFields{indexMAC: mac})
		}
	}
	return handler.Funcs{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q reconciler.Queue) { wake(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconciler.Queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
				wake(ctx, q, e.ObjectOld)
			}
		},
	}
}

// attached makes the controller run for the Machines of a NetworkConfiguration when that changes, and for a Machine that is
// no longer in its status, which a deletion waits for. Its status changes with every address of a guest, which concerns no
// other Machine.
func (r *Reconciler) attached() handler.EventHandler {
	naming := func(ctx context.Context, q reconciler.Queue, object client.Object) {
		r.those(ctx, q, client.InNamespace(object.GetNamespace()), client.MatchingFields{networkconfiguration.IndexNetwork: object.GetName()})
	}
	leaving := func(q reconciler.Queue, before client.Object, left []string) {
		for _, name := range Attached(before) {
			if !slices.Contains(left, name) {
				q.Add(request(before.GetNamespace(), name))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q reconciler.Queue) { naming(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q reconciler.Queue) {
			naming(ctx, q, e.Object)
			leaving(q, e.Object, nil)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconciler.Queue) {
			leaving(q, e.ObjectOld, Attached(e.ObjectNew))
			if matters(e.ObjectOld.(*v1alpha1.NetworkConfiguration), e.ObjectNew.(*v1alpha1.NetworkConfiguration)) {
				naming(ctx, q, e.ObjectNew)
			}
		},
	}
}

// matters returns whether a change of a NetworkConfiguration concerns all Machines on it.
func matters(before, after *v1alpha1.NetworkConfiguration) bool {
	ready := func(n *v1alpha1.NetworkConfiguration) (status, message string, generation int64) {
		if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionAttachmentReady); c != nil {
			return string(c.Status), c.Message, c.ObservedGeneration
		}
		return "", "", 0
	}
	was, said, of := ready(before)
	is, says, now := ready(after)
	return before.Generation != after.Generation || before.UID != after.UID || was != is || said != says || of != now ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}
