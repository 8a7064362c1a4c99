package cluster

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// trustedDifference is the maximum clock skew. Certificates are renewed months before they expire, and the
// administrator's days before, so a smaller skew does no harm.
const trustedDifference = 24 * time.Hour

// doubt returns why certificates are not renewed because of the time; nil if they are. The skew of two clocks does not
// tell which one is wrong.
func (r *Reconciler) doubt() error {
	if r.ClockDifference == nil {
		return nil
	}
	if off := r.ClockDifference(); off > trustedDifference {
		return problem.Newf("ClockSkew", "the clocks of the management cluster's API server and of the operator's host are %d days apart; set the one that is wrong",
			int(off/(24*time.Hour)))
	}
	return nil
}
