package smolvm

import (
	"context"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/placing"
)

// waker makes the controller run for those SmolVMs whose next step a change may change.
type waker struct {
	// reader reads the cache, and waits for nothing.
	reader     client.Reader
	reconciler *Reconciler
	clock      clock.PassiveClock

	mu sync.Mutex
	// timers are one for each node, for when its last report becomes too old.
	timers map[string]*time.Timer
}

// Start stops the timers when the context ends.
func (w *waker) Start(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range w.timers {
		timer.Stop()
	}
	return nil
}

// wake makes the controller run for the SmolVMs that an index finds.
func (w *waker) wake(q queue, which ...client.ListOption) {
	var list v1alpha1.SmolVMList
	// The cache cannot fail for an index that exists. Were there an error, the next event would wake them.
	_ = w.reader.List(context.Background(), &list, append(which, client.UnsafeDisableDeepCopy)...)
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}

func (w *waker) wakePending(q queue) { w.wake(q, client.MatchingFields{indexNode: pending}) }

// vms handles SmolVMs: those that wait for room run when one of them takes less.
func (w *waker) vms() handler.EventHandler {
	add := func(q queue, object client.Object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			add(q, e.ObjectNew)
			before, after := claimOf(e.ObjectOld), claimOf(e.ObjectNew)
			if before.Node != "" && !reflect.DeepEqual(before, after) {
				w.wakeWaiting(q, before.Node)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			add(q, e.Object)
			if claim := claimOf(e.Object); claim.Node != "" {
				w.wakeWaiting(q, claim.Node)
			}
		},
	}
}

func claimOf(object client.Object) placing.Claim {
	vm, ok := object.(*v1alpha1.SmolVM)
	if !ok {
		return placing.Claim{}
	}
	return placing.ClaimOf(vm)
}

// wakeWaiting makes the controller run for SmolVMs that wait for a node, and for those that wait for room on one.
func (w *waker) wakeWaiting(q queue, node string) {
	w.wakePending(q)
	var list v1alpha1.SmolVMList
	_ = w.reader.List(context.Background(), &list, client.MatchingFields{indexNode: node}, client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		c := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionReconciled)
		if c != nil && c.Reason == v1alpha1.ReasonInsufficientResources {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
}

// runtimes handles SmolVMNodes. A report that says nothing but that the runtime is still there wakes none, unless the one
// before was too old.
func (w *waker) runtimes() handler.EventHandler {
	tell := func(q queue, node *v1alpha1.SmolVMNode) {
		w.reconciler.Nodes.Follow(node)
		w.wakePending(q)
		w.wake(q, client.MatchingFields{indexNode: node.Name})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if node, ok := e.Object.(*v1alpha1.SmolVMNode); ok {
				w.mind(q, node)
				tell(q, node)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, was := e.ObjectOld.(*v1alpha1.SmolVMNode)
			after, is := e.ObjectNew.(*v1alpha1.SmolVMNode)
			if !was || !is {
				return
			}
			w.mind(q, after)
			if isNews(before, after) {
				tell(q, after)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			w.forget(e.Object.GetName())
			w.reconciler.Nodes.Forget(e.Object.GetName())
			w.wakePending(q)
			w.wake(q, client.MatchingFields{indexNode: e.Object.GetName()})
		},
	}
}

// isNews returns whether a report says more than that the runtime is still there.
func isNews(before, after *v1alpha1.SmolVMNode) bool {
	if before.UID != after.UID || !equality.Semantic.DeepEqual(before.Labels, after.Labels) {
		return true
	}
	if b, a := before.Status.HeartbeatTime, after.Status.HeartbeatTime; a != nil && (b == nil || a.Sub(b.Time) > placing.HeartbeatTimeout) {
		return true
	}
	return !equality.Semantic.DeepEqual(lasting(before), lasting(after))
}

// lasting returns what of a report counts, without its times.
func lasting(n *v1alpha1.SmolVMNode) v1alpha1.SmolVMNodeStatus {
	status := *n.Status.DeepCopy()
	status.HeartbeatTime = nil
	for i, c := range status.Conditions {
		status.Conditions[i] = metav1.Condition{Type: c.Type, Status: c.Status}
	}
	return status
}

// mind wakes all SmolVMs that wait for a node when the last report of this node becomes too old.
func (w *waker) mind(q queue, node *v1alpha1.SmolVMNode) {
	w.forget(node.Name)
	if node.Status.HeartbeatTime == nil {
		return
	}
	left := node.Status.HeartbeatTime.Add(placing.HeartbeatTimeout + time.Second).Sub(w.clock.Now())
	if left <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timers == nil {
		w.timers = map[string]*time.Timer{}
	}
	w.timers[node.Name] = time.AfterFunc(left, func() { w.wakePending(q) })
}

func (w *waker) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if timer, ok := w.timers[node]; ok {
		timer.Stop()
		delete(w.timers, node)
	}
}

// hosts handles Nodes, which count before a machine is placed, and never after.
func (w *waker) hosts() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { w.wakePending(q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, was := e.ObjectOld.(*corev1.Node)
			after, is := e.ObjectNew.(*corev1.Node)
			// The cache has of Nodes only what counts.
			if !was || !is || equality.Semantic.DeepEqual(before.Spec, after.Spec) && equality.Semantic.DeepEqual(before.Status, after.Status) {
				return
			}
			w.wakePending(q)
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { w.wakePending(q) },
	}
}
