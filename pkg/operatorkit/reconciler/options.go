package reconciler

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

const (
	// concurrency is how many clusters are reconciled at the same time.
	concurrency = 8
	// retryFirst and retryLast bound the back-off of a failing cluster.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
)

// Options are those of a controller of KVMConfigs. timeout bounds one reconcile of one cluster.
func Options(m manager.Manager, name string, timeout time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		ReconciliationTimeout:   timeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		LogConstructor:          chain.LoggerOf(m.GetLogger(), name, "kvmconfig"),
	}
}
