// Package release is the handler that says whether the versions of a cluster are known, supported and may follow those in
// force.
package release

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
)

// Handler reports what gathering found. What needs versions looks at the snapshot: while a change is refused or waits,
// those in force are used.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "release" }

// EnsureCreated drafts the versions in force into the status. Those of a living cluster are stored before a machine is told
// to run others: an operator that ends in between must know which change had begun, or it could be undone as if no master
// had been touched.
func (Handler) EnsureCreated(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if s.VersionsErr != nil {
		return chain.Outcome{}, s.VersionsErr
	}
	before, versions := s.Config.Status.Versions, s.Versions
	s.Config.Status.Versions = &versions
	switch {
	case s.VersionsRefused != nil:
		return chain.Outcome{}, s.VersionsRefused
	case before != nil && *before != versions:
		return chain.Store("the versions of the cluster change"), nil
	case s.VersionsWait != "":
		return chain.Wait("MastersNotReady", s.VersionsWait, 0), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted has nothing to do: a cluster goes whether its Release still exists or not.
func (Handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
