package chain

import (
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LoggerOf returns a function that creates the loggers of a controller. Their entries have the name of the controller
// and the object that it reconciles, as "namespace/name" under the key kind.
func LoggerOf(base logr.Logger, controller, kind string) func(*reconcile.Request) logr.Logger {
	logger := base.WithValues("controller", controller)
	return func(r *reconcile.Request) logr.Logger {
		if r == nil {
			return logger
		}
		return logger.WithValues(kind, r.String())
	}
}
