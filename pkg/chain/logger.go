package chain

import (
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LoggerOf makes the loggers of a controller, whose lines name it and the object that it is at, as "namespace/name" under the key of its kind.
func LoggerOf(base logr.Logger, controller, kind string) func(*reconcile.Request) logr.Logger {
	logger := base.WithValues("controller", controller)
	return func(r *reconcile.Request) logr.Logger {
		if r == nil {
			return logger
		}
		return logger.WithValues(kind, r.String())
	}
}
