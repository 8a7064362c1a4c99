package service

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestWhoIsQuietHasItsTurn checks that objects which exist when the operator starts are reconciled although others
// change all the time.
func TestWhoIsQuietHasItsTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const turns = 1000
	others, found := 0, false
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	options := controller.Options{Reconciler: reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
		switch r.Name {
		case "quiet":
			found = true
			cancel()
		case "left":
			queue.Add(request("right"))
		case "right":
			queue.Add(request("left"))
		}
		if others++; others > turns {
			cancel()
		}
		return reconcile.Result{}, nil
	})}
	options.DefaultFromConfig(controllers)
	c, err := controller.NewUnmanaged("fair", options)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Watch(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		q.Add(request("left"))
		quiet := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}}
		(&handler.EnqueueRequestForObject{}).Create(ctx, event.CreateEvent{Object: quiet, IsInInitialList: true}, q)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Errorf("after %d turns of others it has had none", others)
	}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
