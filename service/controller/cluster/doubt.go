package cluster

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// trustedDifference is how far two clocks may be off each other. Certificates are issued anew months before they end, and the administrator's days
// before, so a clock that is off by less does no harm.
const trustedDifference = 24 * time.Hour

// doubt is why certificates are not issued anew because of the time now; nil when they are. Two clocks that differ do not tell which one is
// wrong.
func (r *Reconciler) doubt() error {
	if r.ClockDifference == nil {
		return nil
	}
	if off := r.ClockDifference(); off > trustedDifference {
		return problem.Newf("ClocksDiffer", "the clocks of the management cluster's API server and of the operator's host are %d days apart; set the one that is wrong",
			int(off/(24*time.Hour)))
	}
	return nil
}
