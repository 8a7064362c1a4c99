package election

import (
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// courtesy is how long a replica waits for a newer one to take the Lease again.
const courtesy = time.Minute

// standAside returns the Lease as a replica has to see it that is older than the last holder: as held for another
// minute, from the moment in which it was renewed or released. A running newer replica takes the Lease much sooner. So
// an older replica, which may remain for some time during an upgrade, does not revert what the newer one has done to
// clusters while that is restarted; but it leads when the newer one is gone, as it is when an upgrade was rolled back.
func standAside(record *resourcelock.LeaderElectionRecord, last, own string) *resourcelock.LeaderElectionRecord {
	if !older(own, last) {
		return record
	}
	seen := *record
	seen.LeaseDurationSeconds = max(seen.LeaseDurationSeconds, int(courtesy.Seconds()))
	if seen.HolderIdentity == "" {
		seen.HolderIdentity = "a replica of version " + last
	}
	return &seen
}

// older compares two versions. Builds between two releases have no order, and a version that cannot be parsed is
// neither older nor newer.
func older(a, b string) bool {
	left, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	right, err := version.ParseGeneric(b)
	return err == nil && left.LessThan(right)
}
