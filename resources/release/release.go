// Package release is the handler that says whether the versions of a cluster are known and supported.
package release

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
)

// Handler reports what gathering found; whoever needs a version needs it.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "release" }

// EnsureCreated drafts the versions in force into the status.
func (Handler) EnsureCreated(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if s.VersionsErr != nil {
		return chain.Outcome{}, s.VersionsErr
	}
	versions := s.Versions
	s.Config.Status.Versions = &versions
	return chain.Done(), nil
}

// EnsureDeleted has nothing to do: a cluster goes whether its Release still exists or not.
func (Handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
